"""Which texts are expressions; see `sweep.space.expressions` for what they mean."""

import ast
import warnings

LONGEST = 200
"""Characters of an expression; bounds its depth and the time that it takes."""


_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
#: Function → how many arguments it takes.
FUNCTIONS = {
    "min": range(2, LONGEST),
    "max": range(2, LONGEST),
    "round": range(1, 3),
    **dict.fromkeys(
        ("abs", "int", "float", "floor", "ceil", "sqrt", "exp", "log", "log2", "log10"),
        range(1, 2),
    ),
}

ALLOWED = (
    "numbers, quoted text, names of parameters, + - * / // % **, comparisons, and or not in, "
    "a if c else b, and the functions " + ", ".join(FUNCTIONS)
)


class ExpressionError(Exception):
    """An expression that cannot be read, or that has no value for these parameters."""


def parse(text: str) -> tuple[ast.expr, tuple[str, ...]]:
    """The tree of an expression, and the parameters that it speaks of, in order of appearance.

    Raises:
        ExpressionError: it is not an expression of this language.
    """
    tree = _tree(text)
    names: dict[str, None] = {}
    _check(tree, names)
    return tree, tuple(names)


def _tree(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise ExpressionError(f"has {len(text)} characters; at most {LONGEST} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # doubtful syntax, such as "1if", is no syntax here
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(f"cannot be read: {_why(error)}") from error


def _why(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error) or "it is too deep"


def _check(node: ast.expr, names: dict[str, None]) -> None:
    """Refuse what is not in the language, and collect the names of parameters."""
    if (name := dotted(node)) is not None:
        names[name] = None
        return
    for part in operands(node):
        _check(part, names)


def dotted(node: ast.expr) -> str | None:
    """``model.hidden`` for the parameter of that name; None: `node` is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def operands(node: ast.expr) -> list[ast.expr]:
    """The parts of a node; ExpressionError if the language has none of its kind."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return []
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() | ast.Not(), operand=operand):
            return [operand]
        case ast.BoolOp(values=parts):
            return parts
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return [test, body, orelse]
        case ast.Compare(left=left):
            return [left, *_compared(node)]
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            return [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _arguments(name, arguments)
    raise _not_ours(node)


def _not_ours(node: ast.expr) -> ExpressionError:
    return ExpressionError(f"contains {ast.unparse(node)!r}, which is not in the language")


def _compared(node: ast.Compare) -> list[ast.expr]:
    """What stands right of the signs; of ``in``, the items of its list."""
    found: list[ast.expr] = []
    for op, part in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.Is | ast.IsNot):
            raise _not_ours(node)
        if not isinstance(op, ast.In | ast.NotIn):
            found.append(part)
        elif isinstance(part, ast.Tuple | ast.List):
            found += part.elts
        else:
            raise ExpressionError(f"looks in {ast.unparse(part)!r}; expected values in brackets")
    return found


def _arguments(name: str, arguments: list[ast.expr]) -> list[ast.expr]:
    if name not in FUNCTIONS:
        raise ExpressionError(f"calls {name!r}; the functions are {', '.join(FUNCTIONS)}")
    if len(arguments) not in FUNCTIONS[name]:
        raise ExpressionError(f"calls {name!r} with {len(arguments)} arguments")
    return arguments
