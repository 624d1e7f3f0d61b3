import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.spec.space.expressions import LONGEST, Expression, ExpressionError


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("1 - _x", {"_x": 0.25}, 0.75),
        ("2 ** n", {"n": 7}, 128),
        ("model.width // 2", {"model.width": 65}, 32),
        ("min(a, b, 3)", {"a": 4, "b": 5}, 3),
        ("max(a, b)", {"a": 4, "b": 5.5}, 5.5),
        ("round(x, 2)", {"x": 0.126}, 0.13),
        ("round(x, 4 / n)", {"x": 0.126, "n": 2}, 0.13),
        ("round(x)", {"x": 2.6}, 3),
        ("int(x) + float(n)", {"x": 2.9, "n": 1}, 3.0),
        ("abs(-n) % 3", {"n": 5}, 2),
        ("1 < n <= 5", {"n": 5}, True),
        ("1 < n < 5", {"n": 5}, False),
        ("a == b", {"a": "tanh", "b": "tanh"}, True),
        ("a != b", {"a": [64], "b": [64]}, False),
        ("-(a + b) * +2", {"a": 1, "b": 2}, -6),
        ("a if n > 3 else b", {"n": 4, "a": 1, "b": 2}, 1),
        ("'deep' if n > 3 else 'flat'", {"n": 3}, "flat"),
        ("n != 0 and 6 / n > 2", {"n": 0}, False),
        ("n == 0 or 6 / n > 2", {"n": 0}, True),
        ("0 if n == 0 else 6 / n", {"n": 0}, 0),
        ("not (a and b)", {"a": True, "b": False}, True),
        ("a in ('tanh', b)", {"a": "relu", "b": "relu"}, True),
        ("n not in [1, 2]", {"n": 2}, False),
        ("1 < n in (2, 3)", {"n": 3}, True),
        ("2 ** 62 - 1 + 2 ** 62", {}, 2**63 - 1),
        ("floor(x) + ceil(x)", {"x": 1.5}, 3),
        ("sqrt(x) * exp(0) + log(1) + log2(8) + log10(100)", {"x": 4}, 7.0),
    ],
)
def test_an_expression_has_the_value_that_it_has_on_paper(
    text: str, values: dict[str, object], expected: object
) -> None:
    value = Expression(text).evaluate(values)
    assert value == expected
    assert type(value) is type(expected)


def test_a_condition_is_true_or_false_and_nothing_else() -> None:
    assert Expression("a > 1").holds({"a": 2})
    with pytest.raises(ExpressionError, match="neither true nor false"):
        Expression("a").holds({"a": 1})


def test_the_names_of_an_expression_are_its_parameters_in_order() -> None:
    assert Expression("model.width * max(lr, _x) - lr").names == ("model.width", "lr", "_x")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('ls')",
        "(1).__class__",
        "min.__self__(1)",
        "open('x')",
        "[1, 2]",
        "x[0]",
        "lambda: 1",
        "a is b",
        "a in b",
        "a in (lambda: 1)",
        "b'text'",
        "...",
        "~a",
        "a @ b",
        "a << 2",
        "f'{a}'",
        "f'{a:{b}}'",
        "(y := 3)",
        "max(*a)",
        "max(a, b, key=c)",
        "abs(1, 2)",
        "min(1)",
        "1j",
        "a; b",
        "",
        "1 +",
        "1if a",
        "\0",
        "lambda",
    ],
)
def test_what_is_not_in_the_language_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "values", "why"),
    [
        ("1 / n", {"n": 0}, "divides by zero"),
        ("n % 0", {"n": 3}, "divides by zero"),
        ("0 ** -n", {"n": 1}, "divides by zero"),
        ("10 ** 10 ** 10", {}, "too large"),
        ("n ** n", {"n": 10**9}, "too large"),
        ("10.0 ** 400", {}, "leaves the range"),
        ("(0 - 8) ** 0.5", {}, "not a real number"),
        ("1e308 * 10", {}, "not finite"),
        ("int(1e308 * 10)", {}, "leaves the range"),
        ("int(1e308 * 10 - 1e308 * 10)", {}, "leaves the range"),
        ("2 ** 64", {}, "64 bits"),
        ("2 ** 63", {}, "64 bits"),
        ("round(5, 0 - 10 ** 9)", {}, "digits"),
        ("name + 1", {"name": "tanh"}, "needs a number, but name is 'tanh'"),
        ("name < 1", {"name": "tanh"}, "only numbers have an order"),
        ("hidden", {"hidden": [64, 64]}, "not a number or text"),
        ("a and b", {"a": 1, "b": True}, "needs true or false, but a is 1; write a comparison"),
        ("1 if a else 2", {"a": "x"}, "needs true or false"),
        ("'a' * 10 ** 9", {}, "needs a number, but 'a' is 'a'"),
        ("log(n)", {"n": 0}, "leaves the range"),
        ("exp(n)", {"n": 10**6}, "leaves the range"),
    ],
)
def test_an_expression_without_a_value_says_why(
    text: str, values: dict[str, object], why: str
) -> None:
    with pytest.raises(ExpressionError, match=why):
        Expression(text).evaluate(values)


def test_an_expression_that_is_too_long_is_refused() -> None:
    Expression("1" + "+1" * (LONGEST // 2 - 1))
    with pytest.raises(ExpressionError, match=f"at most {LONGEST}"):
        Expression("-" * LONGEST + "1")


def test_the_deepest_expression_that_fits_is_computed() -> None:
    assert Expression("-" * (LONGEST - 1) + "1").evaluate({}) == -1


@given(st.text("0123456789.+-*/%()<>=!,_ eabxminlorudt\n'\"[]\\", max_size=LONGEST))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    try:
        expression = Expression(text)
    except ExpressionError:
        return
    try:
        expression.evaluate(dict.fromkeys(expression.names, 2))
    except ExpressionError:
        return
