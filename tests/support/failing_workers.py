"""An environment that breaks the child process it lives in, once or always."""

import gc
import multiprocessing
import os
import signal
import time
from multiprocessing import connection
from pathlib import Path
from typing import Any

from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from trainables.rollout.workers.worker import RolloutWorker


class Failing(CartPoleEnv):
    """CartPole; after `at` steps in worker `index` it does `what`, while `marker` is absent.

    The first thing that happens then is that the marker is made: the mishap happens once, and a
    later run with the same settings is an undisturbed one. Without a marker it always happens.
    """

    def __init__(self, what: str, at: int, marker: str = "", index: int = 1) -> None:
        super().__init__()
        self.what = what
        self.at = at
        self.marker = marker
        self.index = index
        self.lived = 0

    def step(self, action: Any) -> Any:
        self.lived += 1
        if self.lived == self.at and self._concerned() and self._first():
            mishap(self.what)
        return super().step(action)  # type: ignore[no-untyped-call]  # gymnasium's own

    def _concerned(self) -> bool:
        name = multiprocessing.current_process().name
        return name.startswith("rollout-worker-") and self.index in (-1, int(name[-1]))

    def _first(self) -> bool:
        if not self.marker:
            return True
        try:
            Path(self.marker).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def mishap(what: str) -> None:
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang":
        time.sleep(600)
    if what == "raise":
        raise ZeroDivisionError("the world ended")
    if what == "garbage":
        RolloutWorker.sample = lambda _: "garbage"  # type: ignore[method-assign,assignment,return-value]  # broken on purpose
    if what == "noise":
        write_into_the_pipe()


def write_into_the_pipe() -> None:
    """What a library does that prints to a descriptor which is not its own."""
    gc.unfreeze()  # a child has frozen what it began with, and that is not listed
    for one in gc.get_objects():
        if isinstance(one, connection.Connection) and one.readable and not one.closed:
            one.send_bytes(b"no answer at all")


class FailingAndFaulty(Failing):
    """Likewise; and wherever it is, it raises when the cart has gone far to the right."""

    def step(self, action: Any) -> Any:
        if self.state is not None and self.state[0] > 0.1:
            raise ArithmeticError("too far to the right")
        return super().step(action)


class ClosesTogether(CartPoleEnv):
    """In a child, its end waits until the environments of two children are about to end."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def close(self) -> None:
        name = multiprocessing.current_process().name
        if name.startswith("rollout-worker-"):
            (self.folder / f"closing-{name}").touch()
            deadline = time.monotonic() + 60.0  # less than what the test gives a child to end
            while time.monotonic() < deadline and len(list(self.folder.glob("closing-*"))) < 2:
                time.sleep(0.01)
            together = len(list(self.folder.glob("closing-*"))) == 2
            (self.folder / f"{'met' if together else 'alone'}-{name}").touch()
