"""The Trainable whose iterations are the reports of a function."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from trainables.errors import StateError
from trainables.function.inspection import TrainingFunction, innermost, may_draw, name_of
from trainables.function.saving import never_saves
from trainables.function.thread import Checkpoint, FunctionThread, here
from trainables.trainable import Trainable, gives_data


def saved_by_function(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the checkpoint that a function reported, from the entry ``trainable`` of a state.

    It has entries ``data``, ``files`` and ``metrics``. The entry of any other trainable is returned
    unchanged.
    """
    data = saved["data"]
    ours = isinstance(data, Mapping) and data.keys() == {"data", "files", "metrics"}
    return data if ours else saved


def wrap(function: TrainingFunction, saves: bool | None = None) -> type[Trainable]:
    """Return a Trainable class, with the name of `function`, whose iterations are its reports.

    Args:
        saves: True or False if it is known whether reports have checkpoints; None to find out from
            the function's source.
    """
    inner = innermost(function)
    own = {"__doc__": inner.__doc__, "__module__": inner.__module__, "saves": saves}
    own["function"] = staticmethod(function)
    return type(name_of(function), (FunctionTrainable,), own)


class FunctionTrainable(Trainable):
    """A Trainable whose iterations are a function's reports; made by `wrap`."""

    function: ClassVar[TrainingFunction]
    """The training function."""
    saves: ClassVar[bool | None] = None
    """True or False if it is known whether reports have checkpoints; None to find out from the
    function's source."""
    exactness: ClassVar[str] = "as the function saves"
    hands_over: ClassVar[bool] = True

    @classmethod
    def can_save(cls, config: Mapping[str, Any] | None = None) -> bool:
        """Return whether the function's reports have checkpoints, as far as the source shows.

        That is `saves`, if it is not None. Otherwise it is False only if the source shows that no
        report has one.
        """
        return cls.saves if cls.saves is not None else not never_saves(cls.function)

    @property
    def is_random(self) -> bool:
        """True if the function may draw random numbers, or has read its seed in the context."""
        return may_draw(type(self).function) or bool(self._thread and self._thread.knows_seed)

    def setup(self, config: dict[str, Any]) -> None:
        """Store the settings; the function starts in the first `step`, after a restore if any."""
        self._thread: FunctionThread | None = None
        self._checkpoint: Checkpoint | None = None
        self._streams: Mapping[str, Any] | None = None
        self._saved_state: dict[str, Any] | None = None
        self.at_checkpoint = False  # whether the last report carried a checkpoint

    def step(self) -> dict[str, Any]:
        """Let the function run up to its next report or its end; return the reported metrics.

        The first call starts the function. At its end the metrics have ``done: True``. Raises an
        exception that the function raised.
        """
        if self._thread is None:
            config = copy.deepcopy(dict(self.config))
            self._thread = FunctionThread(
                type(self).function, config, self.context, self._checkpoint, self._streams
            )
        thread = self._thread
        thread.advance()
        self.has_ended = thread.has_ended
        if not self.has_ended:  # else it stands where its last report left it
            self.at_checkpoint = thread.at_checkpoint
            self._checkpoint = thread.checkpoint
        return dict(thread.metrics)

    def train(self) -> dict[str, Any]:
        """Run one iteration, and return its result.

        If the function reported a checkpoint, the state at this moment, with counters and random
        streams, is kept for `get_state`.
        """
        result = super().train()
        if self.at_checkpoint and not self.has_ended:
            self._saved_state = super().get_state()
        return result

    @gives_data
    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the last reported checkpoint as ``data``, ``files`` and ``metrics``.

        `checkpoint_dir` is not used. Raises StateError if none was reported.
        """
        saved = self._checkpoint
        if saved is None:
            remedy = "call report(metrics, checkpoint=...) with all that it needs to continue"
            raise StateError(
                type(self).__name__, "a function that has reported no checkpoint", remedy
            )
        return {"data": saved.data, "files": dict(saved.files), "metrics": dict(saved.metrics)}

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Make the next `step` start the function with what `save_checkpoint` returned.

        A function that runs is ended.
        """
        self.cleanup()
        self._checkpoint = Checkpoint(**checkpoint)

    def get_state(self) -> dict[str, Any]:
        """Return the state at the last report with a checkpoint, not the function's present one.

        Raises StateError if there was no such report.
        """
        return super().get_state() if self._saved_state is None else self._saved_state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned; a function that runs is ended.

        The next `step` starts the function again.
        """
        super().set_state(state)
        self._streams = state["streams"]
        self._saved_state = super().get_state()
        self.at_checkpoint, self.has_ended = True, False

    @classmethod
    def has_own_export(cls) -> bool:
        """Return whether the function or its module defines ``export_model(folder)``."""
        return _exporter(cls.function) is not None

    def write_own_export(self, folder: Path) -> None:
        """Call the function's ``export_model(folder)``, in which `get_checkpoint` works.

        Does nothing if there is none.
        """
        export = _exporter(type(self).function)
        if export is None:
            return
        before = getattr(here, "thread", None)
        asked = FunctionThread(
            type(self).function, dict(self.config), self.context, self._checkpoint, None
        )
        here.thread = asked
        try:
            export(folder)
        finally:
            here.thread = before
            asked.stop_function()

    def cleanup(self) -> None:
        """End the function inside its `report()`; one that does not end in time is abandoned.

        Then `lingers` is True: it may draw from the global streams at any time.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            self.lingers = not thread.stop_function()


def _exporter(function: TrainingFunction) -> Callable[[Path], object] | None:
    """Return the function ``export_model`` for a training function; None if there is none.

    It is an attribute of the function, or defined in its module.
    """
    inner = innermost(function)
    beside = getattr(inner, "__globals__", {}).get("export_model")
    if getattr(beside, "__module__", None) != inner.__module__:  # imported from elsewhere
        beside = None
    found = getattr(inner, "export_model", beside)
    return found if callable(found) else None
