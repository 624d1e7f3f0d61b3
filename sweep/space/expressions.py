"""Expressions over the parameters of a search space, for example ``1 - _one_minus_lambda``.

Numbers, quoted text, True, False and None, names of parameters (dots allowed), ``+ - * / // % **``,
comparisons, ``in (…)``, ``and or not``, ``a if c else b``, and functions of numbers. Nothing else
is read: the text is parsed, checked node by node and walked; it is never compiled or run.
"""

import ast
import builtins
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainables.errors import shorten

#: Characters of an expression; bounds its depth and the time that it takes.
LONGEST = 200
_LARGEST_POWER_BITS = 1024
_DIGITS = range(18)
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITY: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
#: Function → how many arguments it takes.
_FUNCTIONS: dict[str, range] = {
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
    "a if c else b, and the functions " + ", ".join(_FUNCTIONS)
)


class ExpressionError(Exception):
    """An expression that cannot be read, or that has no value for these parameters."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression; ExpressionError if `text` is none of this language."""

    text: str

    def __post_init__(self) -> None:
        _ = self.names

    @cached_property
    def _tree(self) -> ast.expr:
        return _parse(self.text)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters that it speaks of, in order of appearance."""
        return tuple(dict.fromkeys(_names(self._tree)))

    def describe(self) -> str:
        """In words."""
        return self.text

    def evaluate(self, values: Mapping[str, Any]) -> int | float | bool | str | None:
        """Its value, given those of `names`; a number is finite, and of 64 bits if it is whole.

        Raises:
            ExpressionError: no such value exists, for example after a division by zero.
        """
        try:
            value = _walk(self._tree, values)
        except ZeroDivisionError as error:
            raise ExpressionError("divides by zero") from error
        except (OverflowError, ValueError) as error:  # ValueError: of NaN, from infinity - infinity
            raise ExpressionError("leaves the range of numbers") from error
        if value is None or isinstance(value, str):
            return value
        if not isinstance(value, int | float):
            raise ExpressionError(f"has the value {shorten(value)}, which is no number or text")
        if isinstance(value, float) and not math.isfinite(value):
            raise ExpressionError(f"has the value {value}, which is not finite")
        if abs(value) >= 2**63 and isinstance(value, int):
            raise ExpressionError("has a whole value of more than 64 bits")
        return value

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether it is true; ExpressionError if it has no value, or another kind."""
        value = self.evaluate(values)
        if isinstance(value, bool):
            return value
        raise ExpressionError(f"has the value {shorten(value)}, which is neither true nor false")


# ---- reading --------------------------------------------------------------------------------


def _parse(text: str) -> ast.expr:
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


def _names(node: ast.expr) -> Iterator[str]:
    """The parameters of an expression; ExpressionError for what is not in the language."""
    if (name := _dotted(node)) is not None:
        yield name
        return
    for part in _operands(node):
        yield from _names(part)


def _dotted(node: ast.expr) -> str | None:
    """``model.hidden`` for the parameter of that name; None: `node` is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def _operands(node: ast.expr) -> list[ast.expr]:
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
        case ast.BinOp(left=left, op=op, right=right) if type(op) in (*_ARITHMETIC, ast.Pow):
            return [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _arguments(name, arguments)
    raise _not_ours(node)


def _not_ours(node: ast.expr) -> ExpressionError:
    return ExpressionError(f"contains {ast.unparse(node)!r}, which is not in the language")


def _compared(node: ast.Compare) -> list[ast.expr]:
    """Return the right sides of the comparisons; of ``in``, the items of its list."""
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
    if name not in _FUNCTIONS:
        raise ExpressionError(f"calls {name!r}; the functions are {', '.join(_FUNCTIONS)}")
    if len(arguments) not in _FUNCTIONS[name]:
        raise ExpressionError(f"calls {name!r} with {len(arguments)} arguments")
    return arguments


# ---- evaluating -----------------------------------------------------------------------------


def _walk(node: ast.expr, values: Mapping[str, Any]) -> Any:
    name = _dotted(node)
    if name is not None:
        return values[name]
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Compare(left=left, ops=ops, comparators=rest):
            return _compare(ops, [_walk(left, values), *(_side(part, values) for part in rest)])
        case ast.BoolOp(op=op, values=parts):
            wanted = isinstance(op, ast.Or)
            return wanted if any(_truth(p, values) is wanted for p in parts) else not wanted
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _walk(body if _truth(test, values) else orelse, values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _truth(operand, values)
    return _compute(node, [_number(_walk(part, values), part) for part in _operands(node)])


def _compute(node: ast.expr, numbers: list[Any]) -> Any:
    match node:
        case ast.UnaryOp(op=sign):
            return _SIGNS[type(sign)](*numbers)
        case ast.BinOp(op=ast.Pow()):
            return _power(*numbers)
        case ast.BinOp(op=op):
            return _ARITHMETIC[type(op)](*numbers)
        case ast.Call(func=ast.Name(id=function)):
            return _call(function, numbers)
    raise AssertionError(ast.dump(node))  # `parse` let nothing else through


def _side(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """Return the value right of a comparison's sign, or the values of ``in``."""
    if isinstance(node, ast.Tuple | ast.List):
        return [_walk(item, values) for item in node.elts]
    return _walk(node, values)


def _truth(node: ast.expr, values: Mapping[str, Any]) -> bool:
    value = _walk(node, values)
    if isinstance(value, bool):
        return value
    raise ExpressionError(
        f"needs true or false, but {ast.unparse(node)} is {shorten(value)}; compare it"
    )


def _number(value: Any, node: ast.expr) -> Any:
    if isinstance(value, int | float):
        return value
    raise ExpressionError(f"needs a number, but {ast.unparse(node)} is {shorten(value)}")


def _compare(ops: list[ast.cmpop], values: list[Any]) -> bool:
    for op, left, right in zip(ops, values, values[1:], strict=False):
        ordered = type(op) in _ORDER
        if ordered and not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise ExpressionError(
                f"orders {shorten(left)} and {shorten(right)}; only numbers have an order"
            )
        if not (_ORDER | _EQUALITY)[type(op)](left, right):
            return False
    return True


def _power(base: float, exponent: float) -> Any:
    """``base ** exponent``, refused where the result would be huge or complex."""
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(exponent) * base.bit_length() > _LARGEST_POWER_BITS:
            raise ExpressionError(f"raises {base} to the power {exponent}, which is too large")
    elif base < 0 and exponent != int(exponent):
        raise ExpressionError(f"raises {base} to the power {exponent}, which is no real number")
    return base**exponent


def _call(function: str, numbers: list[Any]) -> Any:
    if function == "round" and len(numbers) == 2 and numbers[1] not in _DIGITS:
        raise ExpressionError(f"rounds to {numbers[1]} digits; expected 0 to {_DIGITS[-1]}")
    return (getattr(math, function, None) or getattr(builtins, function))(*numbers)
