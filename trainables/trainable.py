"""The contract of everything that can be trained, saved and continued.

The loop that calls it:

    trainable = MyTrainable(config, TrialContext(seed=1))
    while not done:
        result = trainable.train()          # one iteration: step() plus the usual keys
        if time_to_save:
            path = trainable.save(folder)   # one file, whole or absent
    trainable.stop()

    again = MyTrainable(config, TrialContext(seed=1))
    again.restore(path)                     # goes on as if nothing had happened

A subclass writes `setup`, `step`, `save_checkpoint` and `load_checkpoint`; these have the names and
meanings of Ray Tune's class API. Results are nested dicts of plain values; a path into them uses
``/``. Times are seconds. Saving has no side effects: a run that saves every iteration equals one
that never does.
"""

import copy
import io
import math
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from trainables.checkpoint import file
from trainables.checkpoint import opaque as unsafe_pickle
from trainables.checkpoint.opaque import (
    fresh_path,
    path_in,
    read_files,
    temporary_folder,
    write_files,
)
from trainables.core import rng
from trainables.core.results import Counters, LoggerCreator, ResultLog
from trainables.errors import (
    ConfigError,
    StateError,
    TrainableError,
    WrongFormat,
    printable,
    shorten,
)


@dataclass(frozen=True)
class TrialContext:
    """Seed, name and folder of a trial."""

    seed: int = 0
    """Seed of every stream of this trial."""
    trial_id: str = "default"
    trial_name: str = "default"
    logdir: Path | None = None
    """Folder for whatever the trainable wants to keep beside its checkpoints; None: a fresh one
    under ``results`` in the current folder, made when something is written into it."""
    resources: Mapping[str, float] = field(default_factory=dict)
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """Results of `Trainable.remembers` in earlier trials of the same sweep, and in the checkpoint
    after a restore, which goes first."""
    shared: Path | None = None
    """Folder that all trials of the sweep share: one measures something while the others wait for
    its file; None: there are no others. Nothing in it is needed again."""
    settled: bool = False
    """True if the settings are those of a sweep's trial, to which `Trainable.settle_config` was
    applied when the trial was made. A setting that is still ``auto`` then has the value that it
    always had before there was a choice."""
    metric: str = ""
    """The result by which trials of the sweep are compared: of a function that returns a number it
    is that number; empty: there is no sweep."""
    other_kernel: bool = False
    """True if a trial may continue without the compiled code that its checkpoint was made with."""


_Save = TypeVar("_Save", bound=Callable[..., Any])
_gives_data: set[Callable[..., Any]] = set()


def gives_data(save_checkpoint: _Save) -> _Save:
    """Mark a `save_checkpoint` that writes no files: no folder is made for it.

    What overrides it and writes none either is marked as well.
    """
    _gives_data.add(save_checkpoint)
    return save_checkpoint


class Trainable:
    """One iteration at a time, from settings and a seed.

    Args:
        config: the settings, a plain dict; deep-copied.
        context: seed, name and folder.
        logger_creator: makes a logger from the settings, which is given every result; its
            ``logdir`` goes before the context's.
    """

    #: What a checkpoint of this class holds, in words, for `sweep show`. Trainers measure a level.
    exactness: ClassVar[str] = "as saved"
    #: Whether `save_checkpoint` may return what is no plain data: it is pickled, and the
    #: checkpoint signed. Who loads a pickle runs what its writer wanted, so others refuse it.
    unsafe_pickle: ClassVar[bool] = False

    #: True where `get_state` gives what was handed over last, also while `step` goes on.
    hands_over: ClassVar[bool] = False
    #: Settings that decide whether a checkpoint fits: a trial that goes on from the one of another
    #: trial has to have them as that one had. A population's children inherit them.
    fixed_keys: ClassVar[frozenset[str]] = frozenset()
    at_checkpoint = True
    """True if a checkpoint saved now holds all that was done; always, for a class."""
    has_ended = False
    """True if the last `step` found nothing left to do: its result, with ``done: True``, repeats
    that of the last iteration and is none itself."""
    gives_copies = False
    """True if nothing that comes later changes a result of `get_state`, so that it can be packed
    when it is written, and if `get_state` draws from no global stream."""
    lingers = False
    """True if something of it still runs after `stop`, for which the process must end."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        context: TrialContext | None = None,
        logger_creator: LoggerCreator | None = None,
    ) -> None:
        self.context = context or TrialContext()
        self.config: Mapping[str, Any] = copy.deepcopy(dict(config or {}))
        self._counters = Counters()
        self._begin_log(logger_creator)
        rng.seed_global(self.context.seed, "global")
        try:
            self.setup(copy.deepcopy(dict(self.config)))
        except BaseException:
            self._result_log.close()
            raise

    # ---- what a subclass writes -------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Build everything, once, from the settings."""

    def step(self) -> dict[str, Any]:
        """One iteration, seconds to minutes; returns metrics. ``done: True`` ends the trial."""
        raise NotImplementedError(f"{type(self).__name__} must define step()")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | Path | None:
        """Return all that decides the future as plain data, or write files into the folder.

        With files it returns None, the folder, or a path in it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define save_checkpoint()")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Take back what `save_checkpoint` gave: its dict, or a folder with its files.

        A path in the folder that was returned is given as that path, where the files are now.
        """
        raise NotImplementedError(f"{type(self).__name__} must define load_checkpoint()")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take new settings without rebuilding; True if that worked. Default: False."""
        return False

    def cleanup(self) -> None:
        """End processes, close files and environments."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with each complete result."""

    def remembers(self) -> dict[str, Any]:
        """Return findings that took some cost and hold for every trial with the same settings.

        A name that tells the settings apart → plain data that JSON can hold. It is kept in each
        checkpoint and in the ledger of a sweep, and handed to `setup` of later trials and slices
        as ``self.context.remembered``; the first word on a name stands.
        """
        return {}

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        raise NotImplementedError(
            f"{type(self).__name__} cannot export {', '.join(export_formats)}: "
            f"it has no export_model(folder) that would write it"
        )

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> dict[str, float] | None:
        """CPUs and GPUs that one trial needs; None: one CPU."""
        return None

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise `trainables.errors.ConfigError` for settings that cannot work."""

    @classmethod
    def complete_config(
        cls, config: Mapping[str, Any], stop: Mapping[str, float]
    ) -> dict[str, Any]:
        """Settings that follow from the stopping criteria, written down when a trial is created.

        A schedule's length is such a setting: a stop that is changed later changes no old curve.
        """
        return dict(config)

    @classmethod
    def show_metrics(cls, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Settings whose results have these metrics, where a setting says which ones they have.

        Written down when a trial is created, as what `complete_config` adds.
        """
        return dict(config)

    @classmethod
    def result_names(cls, config: Mapping[str, Any]) -> Collection[str] | None:
        """The names of all results with these settings, nested ones as paths; None: nobody knows.

        A name that ends with ``/`` stands for all below it.
        """
        return None

    @classmethod
    def settle_config(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of ``auto`` in these settings: the keys to write down with a new trial.

        So a trial goes on as it began also where a later version would choose otherwise.
        """
        return {}

    @classmethod
    def settled_alike(cls, settled: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
        """Return `settle_config` of a later trial, if the sweep's first has the settings `first`.

        Where that one has no such key no later one is given it. What depends on the machine is as
        it is there, so that all trials of a sweep are alike.
        """
        return {key: value for key, value in settled.items() if key in first}

    @classmethod
    def as_lane(cls, config: Mapping[str, Any], lanes: int) -> dict[str, Any]:
        """Return the settings of a trial that trains as one of so many lanes of one program.

        `check_config` refuses them where no lane can have them.

        Raises:
            ConfigError: no trial of this class can be a lane.
        """
        raise ConfigError(
            "trainable", cls.__name__, "ppo with the pool stack", "others do not train in lanes"
        )

    @classmethod
    def can_be_lane(cls) -> bool:
        """Return whether trials of this class can train in lanes, with settings that fit."""
        own, base = cls.as_lane.__func__, Trainable.as_lane.__func__  # type: ignore[attr-defined]
        return own is not base

    @classmethod
    def train_together(cls, several: Sequence["Trainable"]) -> None:
        """Compute the next iteration of several lanes at once; their `train` then returns it."""

    def train(self) -> dict[str, Any]:
        """Run one `step` and return its result, completed with the usual keys.

        A result that only says that training is over (`has_ended`) repeats the last one: it is
        neither counted nor logged.
        """
        started = time.monotonic()
        returned: object = self.step()
        if not isinstance(returned, Mapping):
            raise TrainableError(
                f"{type(self).__name__}.step() returned {shorten(returned)}; "
                f"expected a dict of metrics"
            )
        elapsed = time.monotonic() - started
        result = self._complete(dict(returned), elapsed)
        if not self.has_ended:
            self.log_result(result)
            self._result_log.add(result)
        return result

    @classmethod
    def can_save(cls) -> bool:
        """Return whether a trial of this class can be stopped and continued."""
        return cls.save_checkpoint is not Trainable.save_checkpoint

    @classmethod
    def writes_files(cls) -> bool:
        """Return whether `save_checkpoint` may write files; not if marked with `gives_data`."""
        return cls.save_checkpoint not in _gives_data

    @classmethod
    def can_export(cls) -> bool:
        """Return whether `export_model` can write anything."""
        return cls.exports_own() or cls._export_model is not Trainable._export_model

    @classmethod
    def exports_own(cls) -> bool:
        """Return whether it has an ``export_model(folder)`` of its own, for any format."""
        return cls.export_model is not Trainable.export_model

    def export_own(self, folder: Path) -> None:
        """Let its own ``export_model(folder)`` write its files."""
        self.export_model(folder)  # type: ignore[arg-type]  # a subclass's own, see `exports_own`

    def get_state(self) -> dict[str, Any]:
        """Everything that decides the future: entries ``trainable``, ``counters``, ``streams``.

        And ``remembered``, where there is anything (`remembers`).

        The global streams are read before and put back after `save_checkpoint`, so that saving
        has no side effects even where the subclass draws random numbers in it.

        Raises:
            StateError: what it gave could not be given back to `load_checkpoint`.
        """
        name = type(self).__name__
        streams = rng.capture_global()
        place = temporary_folder(self.context.logdir) if self.writes_files() else nullcontext("")
        with place as folder:
            returned: object = self.save_checkpoint(folder)
            saved = _saved(returned, folder, name, self.unsafe_pickle)
        if not self.gives_copies:
            rng.restore_global(streams)
        if type(self).load_checkpoint is Trainable.load_checkpoint:
            remedy = f"define {name}.load_checkpoint(checkpoint), which takes it back"
            raise StateError(f"{name}.save_checkpoint()", "what nothing can take back", remedy)
        remembered = self.remembers()
        return {
            "trainable": saved,
            "counters": self._counters.get_state(),
            "streams": streams,
            **({"remembered": remembered} if remembered else {}),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        saved = state["trainable"]
        before = {**self.context.remembered, **state.get("remembered", {})}
        self.context = replace(self.context, remembered=before)
        if saved["data"] is not None:
            name = type(self).__name__
            self.load_checkpoint(unsafe_pickle.unpack(saved["data"], name, self.unsafe_pickle))
        else:
            with temporary_folder(self.context.logdir) as folder:
                write_files(Path(folder), saved["files"])
                self.load_checkpoint(path_in(folder, saved.get("path", "")))
        self._counters.set_state(state["counters"])
        rng.restore_global(state["streams"])

    def save(self, checkpoint_dir: str | Path | None = None) -> Path:
        """Write one checkpoint file into `checkpoint_dir` (default: `logdir`); return its path."""
        state = self.get_state()
        header = {"trainable": type(self).__name__, "exactness": self.exactness}
        step = int(state["counters"]["training_iteration"])
        folder = Path(checkpoint_dir or self.logdir)
        return file.write(folder, step, header, state).path

    def restore(self, checkpoint: str | Path) -> None:
        """Continue from a file that `save` wrote; raises CheckpointError when it cannot be used."""
        self.continue_from(file.read(Path(checkpoint)).state, checkpoint, adapt=True)

    def save_to_object(self) -> bytes:
        """Return the files that `save` writes, as bytes of an archive."""
        with tempfile.TemporaryDirectory() as folder, io.BytesIO() as packed:
            self.save(folder)
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(folder, arcname="")
            return packed.getvalue()

    def restore_from_object(self, packed: bytes) -> None:
        """Continue from what `save_to_object` gave; CheckpointError for anything else."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                    archive.extractall(folder, filter="data")
            except (tarfile.TarError, OSError, ValueError) as error:
                raise WrongFormat(
                    "the given bytes", f"no archive of a checkpoint: {error}"
                ) from error
            found = [one for one in Path(folder).iterdir() if file.parse_name(one.name)]
            if len(found) != 1:
                raise WrongFormat("the given bytes", f"{len(found)} checkpoints; expected one")
            self.restore(found[0])

    def adapted(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A saved state as `restore` takes it; default: as it is.

        Where other settings leave no way to go on exactly, a class may give a state from which to
        go on all the same. A sweep does not ask for it: its trials go on exactly or not at all.
        """
        return state

    def continue_from(
        self, state: Mapping[str, Any], checkpoint: object, adapt: bool = False
    ) -> None:
        """`set_state`, with `adapt` of the `adapted` state; WrongFormat for another shape."""
        try:
            self.set_state(self.adapted(state) if adapt else state)
        except TrainableError:
            raise
        except Exception as error:  # a state of another shape fails in any way
            reason = f"does not fit this {type(self).__name__}: {type(error).__name__}: {error}"
            raise WrongFormat(checkpoint, printable(reason)[:300]) from error

    def reset(self, config: Mapping[str, Any], context: TrialContext) -> bool:
        """Become another trial without rebuilding; False: it cannot, and is of no use any more."""
        self.config, self.context = copy.deepcopy(dict(config)), context
        self._result_log.close()
        self._begin_log(self._result_log.create)
        rng.seed_global(context.seed, "global")
        if not self.reset_config(copy.deepcopy(dict(self.config))):
            return False
        self._counters = Counters()
        return True

    def export_model(
        self, export_formats: str | Sequence[str], export_dir: str | Path | None = None
    ) -> dict[str, str]:
        """Write the model in each format; returns format → path."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, str(export_dir or self.logdir))

    def play(
        self,
        episodes: int,
        seed: int,
        video: Path | None = None,
        window: bool = False,
        most_steps: float = math.inf,
    ) -> list[dict[str, float]]:
        """Play episodes of what was learnt; for each its ``episode_reward`` and ``episode_len``.

        Args:
            episodes: how many.
            seed: same seed and weights, same episodes.
            video: a folder for an MP4 file of each.
            window: whether they are shown on the screen.
            most_steps: environment steps that all of them may take together, without pictures.

        Raises:
            NotImplementedError: there is nothing to play.
            TooManySteps: they take more.
        """
        raise NotImplementedError(f"{type(self).__name__} has no episodes to play")

    @classmethod
    def play_exported(
        cls,
        file: Path,
        card: Mapping[str, Any],
        episodes: int,
        seed: int,
        video: Path | None = None,
        window: bool = False,
    ) -> list[dict[str, float]]:
        """`play` for a model that was exported to `file`; `card` is what its folder says of it."""
        raise NotImplementedError(f"{cls.__name__} has no episodes to play")

    def stop(self) -> None:
        """End this trainable; it cannot be used afterwards."""
        try:
            self.cleanup()
        finally:
            self._result_log.close()

    @property
    def iteration(self) -> int:
        """Iterations finished since the trial's beginning, restarts included."""
        return self._counters.iteration

    @property
    def training_iteration(self) -> int:
        """The name that Ray Tune has for `iteration`."""
        return self.iteration

    @property
    def trial_id(self) -> str:
        """The trial's name in its sweep, ``default`` outside one."""
        return self.context.trial_id

    @property
    def trial_name(self) -> str:
        """The trial's readable name."""
        return self.context.trial_name

    @property
    def trial_resources(self) -> dict[str, float]:
        """The resources that the trial was given."""
        return dict(self.context.resources)

    @property
    def logdir(self) -> str:
        """Folder for whatever the trainable wants to keep.

        Without one in the context it is named ``{class}_{env}_{time}`` when it is first asked for.
        """
        if self.context.logdir is None:
            env = re.sub(r"[^\w.-]+", "_", str(self.config.get("env", "")))
            stamp = datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
            name = "_".join(part for part in (type(self).__name__, env, stamp) if part)
            logdir = fresh_path(Path("results").resolve() / name)
            self.context = replace(self.context, logdir=logdir)
        return str(self.context.logdir)

    def _begin_log(self, create: LoggerCreator | None) -> None:
        self._result_log = ResultLog(create, self.config)
        if self._result_log.folder is not None:
            self.context = replace(self.context, logdir=self._result_log.folder)

    def _complete(self, result: dict[str, Any], elapsed: float) -> dict[str, Any]:
        who = {"trial_id": self.trial_id, "experiment_tag": self.trial_name, "config": self.config}
        return self._counters.complete(result, elapsed, who, is_new=not self.has_ended)


def _saved(returned: object, folder: str, name: str, pickles: bool) -> dict[str, Any]:
    """Return the entries of the state for a result of `save_checkpoint` of the class `name`.

    It was given this folder; empty: none.

    Entries ``data`` (None where it wrote files), ``files`` and, if it returned one in the folder,
    ``path``.

    Raises:
        StateError: nothing, or something that could not be given back.
    """
    place = f"{name}.save_checkpoint()"
    files = read_files(Path(folder), place) if folder else {}
    if returned is None or isinstance(returned, str | Path):
        path = "" if returned is None else _in_folder(Path(returned), Path(folder), place)
        if not files:
            remedy = "return a dict ({} if nothing decides the future), or write files"
            raise StateError(place, "nothing, and a folder without files,", remedy)
        return {"data": None, "files": files, **({"path": path} if path else {})}
    if not pickles and not isinstance(returned, Mapping):
        remedy = "return a dict of plain data, or write files into the folder that it is given"
        raise StateError(place, f"a {type(returned).__name__}, {shorten(returned)},", remedy)
    if files:
        found = f"what it returned beside files ({', '.join(sorted(files))})"
        remedy = "only one of the two is given back: return a dict, or write files and return None"
        raise StateError(place, printable(found), remedy)
    return {"data": unsafe_pickle.pack(returned, name, pickles), "files": {}}


def _in_folder(returned: Path, folder: Path, place: str) -> str:
    """Return a returned path relative to the folder; empty for the folder itself."""
    path, root = returned.resolve(), folder.resolve()
    if not path.is_relative_to(root) or not path.exists():
        found = f"the path {shorten(str(returned))}, which is not in the folder that it was given,"
        raise StateError(place, found, "write the files there, and return None or that folder")
    return "" if path == root else path.relative_to(root).as_posix()
