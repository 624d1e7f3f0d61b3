"""Tables of the documentation that benchmarks write between two marks of a page."""


def replace_between(page: str, begin: str, end: str, content: str) -> str:
    """Return the page with `content` between its marks, which stay.

    Args:
        begin: mark before the content; it stands once in the page.
        end: mark after the content; it stands once in the page.

    Raises:
        ValueError: a mark is missing, or stands more than once.
    """
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{content}{end}{after}"
