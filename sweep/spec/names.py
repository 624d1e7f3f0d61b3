"""Names of sweeps: they become folders, experiments and words on a command line."""

import re

LONGEST_NAME = 100

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
#: Device names of Windows, with any ending: a folder of that name cannot be copied there.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")

_ALLOWED = f"1 to {LONGEST_NAME} lowercase letters, digits, . _ -, beginning with letter or digit"


def check_name(name: str) -> str:
    """`name`, if a sweep may be called so; else ValueError with what is allowed."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise ValueError(_ALLOWED)
    if ".." in name or name.endswith("."):
        raise ValueError(f"{_ALLOWED}, without '..' and no dot at the end")
    if _RESERVED.fullmatch(name):
        raise ValueError(f"{_ALLOWED}, and no device name of Windows such as con or nul")
    return name
