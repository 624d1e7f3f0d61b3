"""Expressions over the parameters of a search space, for example ``1 - _one_minus_lambda``.

Numbers, names of parameters (dots allowed), ``+ - * / // % **``, comparisons, and the functions
``min max abs round int float``. Nothing else is read: the text is parsed, checked node by node and
walked; it is never compiled or run.
"""

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from trainables.errors import shorten

LONGEST = 200
"""Characters of an expression; bounds its depth and the time that it takes."""

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
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, tuple[Callable[..., Any], range]] = {
    "min": (min, range(2, LONGEST)),
    "max": (max, range(2, LONGEST)),
    "abs": (abs, range(1, 2)),
    "round": (round, range(1, 3)),
    "int": (int, range(1, 2)),
    "float": (float, range(1, 2)),
}

ALLOWED = (
    "numbers, names of parameters, + - * / // % **, comparisons and the functions "
    + ", ".join(_FUNCTIONS)
)


class ExpressionError(Exception):
    """An expression that cannot be read, or that has no value for these parameters."""


class Expression:
    """A parsed expression.

    Args:
        text: the expression, at most `LONGEST` characters.

    Raises:
        ExpressionError: it is not an expression of this language.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tree = _parse(text)
        names: dict[str, None] = {}
        _check(self._tree, names)
        self.names: tuple[str, ...] = tuple(names)
        """The parameters that it speaks of, in order of appearance."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def evaluate(self, values: Mapping[str, Any]) -> int | float | bool:
        """Its value: finite, and within 64 bits if it is whole.

        Args:
            values: every parameter in `names` → its value.

        Raises:
            ExpressionError: no such value exists, for example after a division by zero.
        """
        try:
            value = _walk(self._tree, values)
        except ZeroDivisionError as error:
            raise ExpressionError("divides by zero") from error
        except (OverflowError, ValueError) as error:  # ValueError: of NaN, from infinity - infinity
            raise ExpressionError("leaves the range of numbers") from error
        if not isinstance(value, int | float):
            raise ExpressionError(f"has the value {shorten(value)}, which is no number")
        if isinstance(value, float) and not math.isfinite(value):
            raise ExpressionError(f"has the value {value}, which is not finite")
        if abs(value) >= 2**63 and isinstance(value, int):
            raise ExpressionError("has a whole value of more than 64 bits")
        return value


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


def _check(node: ast.expr, names: dict[str, None]) -> None:
    """Refuse what is not in the language, and collect the names of parameters."""
    if (name := _dotted(node)) is not None:
        names[name] = None
        return
    for part in _operands(node):
        _check(part, names)


def _dotted(node: ast.expr) -> str | None:
    """``model.hidden`` for the parameter of that name; None: `node` is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def _operands(node: ast.expr) -> list[ast.expr]:
    """The parts of a node that is in the language."""
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return []
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
            return [operand]
        case ast.BinOp(left=left, op=op, right=right) if _is_arithmetic(op):
            return [left, right]
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(
            type(o) in _ORDER for o in ops
        ):
            return [left, *rest]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _arguments(name, arguments)
    raise ExpressionError(f"contains {ast.unparse(node)!r}, which is not in the language")


def _is_arithmetic(op: ast.operator) -> bool:
    return type(op) in _ARITHMETIC or isinstance(op, ast.Pow)


def _arguments(name: str, arguments: list[ast.expr]) -> list[ast.expr]:
    if name not in _FUNCTIONS:
        raise ExpressionError(f"calls {name!r}; the functions are {', '.join(_FUNCTIONS)}")
    if len(arguments) not in _FUNCTIONS[name][1]:
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
            return _compare(ops, [_walk(part, values) for part in (left, *rest)])
    operands = [_number(_walk(part, values), part) for part in _operands(node)]
    match node:
        case ast.UnaryOp(op=sign):
            return _SIGNS[type(sign)](*operands)
        case ast.BinOp(op=ast.Pow()):
            return _power(*operands)
        case ast.BinOp(op=op):
            return _ARITHMETIC[type(op)](*operands)
        case ast.Call(func=ast.Name(id=function)):
            return _call(function, operands)
    raise AssertionError(ast.dump(node))  # `_check` let nothing else through


def _number(value: Any, node: ast.expr) -> Any:
    if isinstance(value, int | float):
        return value
    raise ExpressionError(f"needs a number, but {ast.unparse(node)} is {shorten(value)}")


def _compare(ops: list[ast.cmpop], values: list[Any]) -> bool:
    for op, left, right in zip(ops, values, values[1:], strict=False):
        ordered = not isinstance(op, ast.Eq | ast.NotEq)
        if ordered and not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise ExpressionError(
                f"orders {shorten(left)} and {shorten(right)}; only numbers have an order"
            )
        if not _ORDER[type(op)](left, right):
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


def _call(function: str, operands: list[Any]) -> Any:
    if function == "round" and len(operands) == 2 and operands[1] not in _DIGITS:
        raise ExpressionError(f"rounds to {operands[1]} digits; expected 0 to {_DIGITS[-1]}")
    return _FUNCTIONS[function][0](*operands)
