"""Names of sweeps, which become folders and words on a command line, and of results."""

import re

LONGEST_NAME = 100

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
#: Device names of Windows, with any ending: a folder of that name cannot be copied there.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")

#: What all sweeps of a root share, and what a database has beside its file.
_OF_THE_ROOT = re.compile(r"mlflow\.db([.-].*)?|mlartifacts")

_ALLOWED = f"1 to {LONGEST_NAME} lowercase letters, digits, . _ -, beginning with letter or digit"

#: A result by its path, with slashes.
RESULT_PATH = re.compile(r"[^/]+(/[^/]+)*")
RESULT_PATH_ALLOWED = "a path into the results, such as evaluation/episode_reward_mean"


def check_result_path(path: str) -> str:
    """`path`, if a result may be called so; else ValueError with what is allowed."""
    if not RESULT_PATH.fullmatch(path):
        raise ValueError(RESULT_PATH_ALLOWED)
    return path


def check_name(name: str) -> str:
    """`name`, if a sweep may be called so; else ValueError with what is allowed."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise ValueError(_ALLOWED)
    if ".." in name or name.endswith("."):
        raise ValueError(f"{_ALLOWED}, without '..' and no dot at the end")
    if _RESERVED.fullmatch(name):
        raise ValueError(f"{_ALLOWED}, and no device name of Windows such as con or nul")
    if _OF_THE_ROOT.fullmatch(name):
        raise ValueError(f"{_ALLOWED}, and no name of what all sweeps of a root share: {name}")
    return name
