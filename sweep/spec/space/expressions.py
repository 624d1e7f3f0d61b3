"""Expressions over the parameters of a search space, for example ``1 - _one_minus_lambda``.

Numbers, quoted text, True, False and None, names of parameters (dots allowed), ``+ - * / // % **``,
comparisons, ``in (…)``, ``and or not``, ``a if c else b``, and functions of numbers. Nothing else
is accepted: the text is parsed, checked node by node and evaluated; it is never compiled or run.
"""

import ast
import builtins
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

from trainables.errors import shorten

#: Function of the parameters' values by name.
Evaluator = Callable[[Mapping[str, Any]], Any]
#: Maximum length of an expression in characters, which bounds its depth and run time.
LONGEST = 200
#: Maximum size of a power of integers, in bits.
_LARGEST_POWER_BITS = 1024
#: Allowed second arguments of ``round``.
_DIGITS = range(18)
#: Operator between numbers → its function.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
#: Sign of a number → its function.
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
#: Comparison of numbers → its function.
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
#: Comparison of any values → its function.
_EQUALITY: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
#: Function → allowed numbers of arguments.
_FUNCTIONS: dict[str, range] = {
    "min": range(2, LONGEST),
    "max": range(2, LONGEST),
    "round": range(1, 3),
    **dict.fromkeys(
        ("abs", "int", "float", "floor", "ceil", "sqrt", "exp", "log", "log2", "log10"),
        range(1, 2),
    ),
}

#: Rule for expressions, for messages.
ALLOWED = (
    "numbers, quoted text, names of parameters, + - * / // % **, comparisons, and or not in, "
    "a if c else b, and the functions " + ", ".join(_FUNCTIONS)
)


class ExpressionError(Exception):
    """Error that an expression cannot be read, or has no value for some parameters."""


@dataclass(frozen=True)
class Expression:
    """An expression over parameters, such as ``1 - _one_minus_lambda``, checked when it is created.

    Raises:
        ExpressionError: `text` is not an expression of this language.
    """

    text: str
    """Text of the expression, as in the spec."""

    def __post_init__(self) -> None:
        _ = self.names

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in it, each once, in order of appearance."""
        return tuple(dict.fromkeys(_names(_parse(self.text))))

    def describe(self) -> str:
        """Return the text of the expression."""
        return self.text

    def evaluate(self, values: Mapping[str, Any]) -> int | float | bool | str | None:
        """Compute the value for `values`, name → value of each parameter in `names`.

        A number is finite, an integer has at most 64 bits. Raises ExpressionError if there is no
        such value, for example after a division by zero.
        """
        try:
            value = _evaluator(self.text)(values)
        except ZeroDivisionError as error:
            raise ExpressionError("divides by zero") from error
        except (OverflowError, ValueError) as error:  # ValueError: NaN, as from infinity - infinity
            raise ExpressionError("leaves the range of numbers") from error
        if value is None or isinstance(value, str):
            return value
        if not isinstance(value, int | float):
            raise ExpressionError(f"has the value {shorten(value)}, which is not a number or text")
        if isinstance(value, float) and not math.isfinite(value):
            raise ExpressionError(f"has the value {value}, which is not finite")
        if abs(value) >= 2**63 and isinstance(value, int):
            raise ExpressionError("has a whole value of more than 64 bits")
        return value

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the expression is true for `values`.

        Raises ExpressionError if it has no value, or is neither true nor false.
        """
        value = self.evaluate(values)
        if isinstance(value, bool):
            return value
        raise ExpressionError(f"has the value {shorten(value)}, which is neither true nor false")


# ---- reading --------------------------------------------------------------------------------


def _parse(text: str) -> ast.expr:
    """Return the syntax tree of an expression's text.

    Raises ExpressionError if it is longer than `LONGEST`, or no expression of Python.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"has {len(text)} characters; at most {LONGEST} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # doubtful syntax, such as "1if", is refused
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(f"cannot be read: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return the message of an error of Python's parser."""
    return error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"


def _names(node: ast.expr) -> Iterator[str]:
    """Yield the names of the parameters in a tree.

    Raises ExpressionError for syntax outside the language.
    """
    if (name := _dotted_name(node)) is not None:
        yield name
        return
    for part in _operands(node):
        yield from _names(part)


def _dotted_name(node: ast.expr) -> str | None:
    """Return the parameter that a node names, such as ``model.hidden``; None for other nodes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted_name(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return the operands of a node, or the arguments of a call; none for a constant.

    Of a comparison they are all its sides. Raises ExpressionError for a node outside the language.
    """
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
            return [left, *_compared_operands(node)]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in (*_ARITHMETIC, ast.Pow):
            return [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _arguments(name, arguments)
    raise _unknown_node(node)


def _unknown_node(node: ast.expr) -> ExpressionError:
    """Return the error for a node that is outside the language."""
    return ExpressionError(f"contains {ast.unparse(node)!r}, which expressions cannot contain")


def _compared_operands(node: ast.Compare) -> list[ast.expr]:
    """Return the right sides of a chain of comparisons; for ``in``, the items of its list.

    Raises ExpressionError for other operators and for ``in`` without a list.
    """
    operands: list[ast.expr] = []
    for op, part in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.Is | ast.IsNot):
            raise _unknown_node(node)
        if not isinstance(op, ast.In | ast.NotIn):
            operands.append(part)
        elif isinstance(part, ast.Tuple | ast.List):
            operands += part.elts
        else:
            raise ExpressionError(
                f"uses in with {ast.unparse(part)!r}; expected a list of values, such as [1, 2]"
            )
    return operands


def _arguments(name: str, arguments: list[ast.expr]) -> list[ast.expr]:
    """Return the arguments of a call of the function `name` unchanged.

    Raises ExpressionError for an unknown function or a wrong number of arguments.
    """
    if name not in _FUNCTIONS:
        raise ExpressionError(f"calls {name!r}; the allowed functions are {', '.join(_FUNCTIONS)}")
    if len(arguments) not in _FUNCTIONS[name]:
        raise ExpressionError(
            f"calls {name!r} with {len(arguments)} arguments; it takes {_FUNCTIONS[name][0]}"
            + (" or more" if len(_FUNCTIONS[name]) > 1 else "")
        )
    return arguments


# ---- evaluating -----------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _evaluator(text: str) -> Evaluator:
    """Compile an expression's text to a function of the parameters' values, which is cached."""
    return _build(_parse(text))


def _build(node: ast.expr) -> Evaluator:
    """Compile a node to a function of the parameters' values."""
    name = _dotted_name(node)
    if name is not None:
        return operator.itemgetter(name)
    match node:
        case ast.Constant(value=value):
            return lambda _: value
        case ast.Compare(left=left, ops=ops, comparators=right_sides):
            sides = [_build(left), *map(_build_right_side, right_sides)]
            return lambda values: _compare(ops, [side(values) for side in sides])
        case ast.BoolOp(op=op, values=parts):
            wanted, tests = isinstance(op, ast.Or), [_build_test(part) for part in parts]
            return lambda values: wanted if any(t(values) is wanted for t in tests) else not wanted
        case ast.IfExp(test=test, body=body, orelse=orelse):
            holds, one, other = _build_test(test), _build(body), _build(orelse)
            return lambda values: (one if holds(values) else other)(values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            negated = _build_test(operand)
            return lambda values: not negated(values)
    compute, numbers = _computation(node), [_build_number(part) for part in _operands(node)]
    return lambda values: compute(*[number(values) for number in numbers])


def _computation(node: ast.expr) -> Callable[..., Any]:
    """Return the function of numbers that an arithmetic node or call stands for."""
    match node:
        case ast.UnaryOp(op=sign):
            return _SIGNS[type(sign)]
        case ast.BinOp(op=ast.Pow()):
            return _power
        case ast.BinOp(op=op):
            return _ARITHMETIC[type(op)]
        case ast.Call(func=ast.Name(id=function)):
            return partial(_call, function)
    raise AssertionError(ast.dump(node))  # `_parse` refused everything else


def _build_right_side(node: ast.expr) -> Evaluator:
    """Compile the right side of a comparison; the list of ``in`` becomes a list of values."""
    if isinstance(node, ast.Tuple | ast.List):
        items = [_build(item) for item in node.elts]
        return lambda values: [item(values) for item in items]
    return _build(node)


def _build_test(node: ast.expr) -> Evaluator:
    """Compile a node whose value must be true or false.

    The returned function raises ExpressionError for another value.
    """
    evaluate = _build(node)

    def test(values: Mapping[str, Any]) -> bool:
        """Return the test's value, given those of parameters; ExpressionError if no boolean."""
        value = evaluate(values)
        if isinstance(value, bool):
            return value
        raise ExpressionError(
            f"needs true or false, but {ast.unparse(node)} is {shorten(value)}; write a comparison"
        )

    return test


def _build_number(node: ast.expr) -> Evaluator:
    """Compile a node whose value must be a number; true and false count as 1 and 0.

    The returned function raises ExpressionError for another value.
    """
    evaluate = _build(node)

    def number(values: Mapping[str, Any]) -> int | float:
        """Return the number, given the parameters' values.

        Raises ExpressionError if the value is not a number.
        """
        value = evaluate(values)
        if isinstance(value, int | float):
            return value
        raise ExpressionError(f"needs a number, but {ast.unparse(node)} is {shorten(value)}")

    return number


def _compare(ops: list[ast.cmpop], values: list[Any]) -> bool:
    """Return whether a chain of comparisons holds; `ops` are the operators between the `values`.

    Raises ExpressionError if values that are ordered are not numbers.
    """
    for op, left, right in zip(ops, values, values[1:], strict=False):
        ordered = type(op) in _ORDER
        if ordered and not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise ExpressionError(
                f"compares {shorten(left)} with {shorten(right)}; only numbers have an order"
            )
        if not (_ORDER | _EQUALITY)[type(op)](left, right):
            return False
    return True


def _power(base: float, exponent: float) -> Any:
    """Return ``base ** exponent``; ExpressionError if the result would be huge or complex."""
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(exponent) * base.bit_length() > _LARGEST_POWER_BITS:
            raise ExpressionError(f"raises {base} to the power {exponent}, which is too large")
    elif base < 0 and exponent != int(exponent):
        raise ExpressionError(f"raises {base} to the power {exponent}, which is not a real number")
    return base**exponent


def _call(function: str, *numbers: Any) -> Any:
    """Return the value of a function such as ``sqrt`` of numbers.

    Raises ExpressionError if ``round`` is to keep digits other than 0 to 17, and the errors of the
    function itself, such as ValueError for the root of -1.
    """
    if function == "round" and len(numbers) == 2 and numbers[1] not in _DIGITS:
        raise ExpressionError(f"rounds to {numbers[1]} digits; expected 0 to {_DIGITS[-1]}")
    if function == "round":
        return round(numbers[0], *map(int, numbers[1:]))  # the digits may be a float such as 2.0
    return (getattr(math, function, None) or getattr(builtins, function))(*numbers)
