"""HTML from text: everything is escaped unless this module made it."""

import html
import re
from collections.abc import Iterable, Sequence

from trainables.errors import printable


class Markup(str):
    """A text that is HTML already; only this module creates it."""

    __slots__ = ()


#: Content of an element; None is left out.
Child = Markup | str | None


def escape(text: object) -> Markup:
    """Return any object's text as HTML that displays it; a `Markup` is returned as it is.

    Control characters are made visible.
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(printable(str(text)), quote=True))


def tag(name: str, *children: Child | Iterable[Child], **attributes: object) -> Markup:
    """Return the HTML element `name` with its children, which are escaped if they are plain text.

    Attributes ``class_`` and ``data_x`` become ``class`` and ``data-x``. Attributes and children
    that are None are left out.
    """
    inner = "".join(escape(child) for child in _flat(children) if child is not None)
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{inner}</{name}>")


def preformatted(text: str) -> Markup:
    """Return lines of text as a ``pre`` element, escaped."""
    return tag("pre", Markup("\n".join(escape(line) for line in text.splitlines())))


def table(head: Sequence[str], rows: Iterable[Sequence[Child]], kinds: str) -> Markup:
    """Return a table with the titles `head`, which scrolls sideways if necessary.

    `kinds` has a letter for each column, the class of its cells: ``n`` number, ``w`` never wrapped,
    ``t`` text. Raises ValueError if a row has another length.
    """

    def row(name: str, cells: Sequence[Child]) -> Markup:
        """Return a table row with one ``td`` or ``th`` (`name`) per cell."""
        return tag("tr", (tag(name, cell, class_=k) for cell, k in zip(cells, kinds, strict=True)))

    body = [row("td", cells) for cells in rows]
    return tag(
        "div",
        tag(
            "table", tag("thead", row("th", [_title(title) for title in head])), tag("tbody", body)
        ),
        class_="scroll",
    )


def _title(text: str) -> Markup:
    """Return a column's title with places at which a long name may be broken on paper."""
    return Markup(re.sub(r"(?<=[_./])(?=[^_./])", "<wbr>", escape(text)))


def _flat(children: Iterable[Child | Iterable[Child]]) -> Iterable[Child]:
    """Yield the children; one that is an iterable is replaced by its members."""
    for child in children:
        if child is None or isinstance(child, str):
            yield child
        else:
            yield from child
