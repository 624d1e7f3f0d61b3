"""The contract of everything that can be trained, saved and continued.

The caller's loop:

    trainable = MyTrainable(config, TrialContext(seed=1))
    while not done:
        result = trainable.train()          # one iteration: step() plus the usual keys
        if time_to_save:
            path = trainable.save(folder)   # one file, whole or absent
    trainable.stop()

    again = MyTrainable(config, TrialContext(seed=1))
    again.restore(path)                     # continues as if nothing had happened

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
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

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
    type_of,
)

if TYPE_CHECKING:
    from trainables.core.settings import Settings


@dataclass(frozen=True)
class TrialContext:
    """Facts about the trial that a trainable belongs to: seed, names, folders, resources."""

    seed: int = 0
    """Seed from which every random stream of this trial is derived."""
    trial_id: str = "default"
    """Id of the trial in its sweep; ``default`` outside one."""
    trial_name: str = "default"
    """Readable name of the trial, for people; ``default`` outside a sweep."""
    logdir: Path | None = None
    """Folder for files that the trainable keeps outside its checkpoints. If it is None, a new
    folder under ``results`` in the current folder, made at the first write."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Name → amount of each resource that is reserved for the trial."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """Name → plain data that `Trainable.remembers` returned in earlier trials of the sweep.

    After a restore, those of the checkpoint take precedence."""
    shared: Path | None = None
    """Folder that all trials of the sweep share, or None outside a sweep.

    One trial measures something and writes a file, for which the others wait. All of it can be
    measured again, so the folder may be deleted."""
    has_settled_config: bool = False
    """True if the ``auto`` values that `Trainable.settle_config` chose were stored with the new
    trial."""
    metric: str = ""
    """Name of the result by which the sweep compares trials; empty outside a sweep.

    The number that a function trainable returns is this metric.
    """
    allows_other_kernel: bool = False
    """True if the trial may continue although its compiled learner differs from the checkpoint's.

    Its results may then differ in their last bits."""
    number: int = 0
    """Number of the trial in its sweep; 0 outside a sweep."""
    seed_index: int = 0
    """Index of this run's seed among the seeds with which the trial's settings are trained, from
    0."""
    objectives: tuple[str, ...] = ()
    """Names of the results that the sweep optimises in addition to the metric."""


_Save = TypeVar("_Save", bound=Callable[..., Any])
#: The `save_checkpoint` methods that are marked with `gives_data`.
_gives_data: set[Callable[..., Any]] = set()


def gives_data(save_checkpoint: _Save) -> _Save:
    """Mark a `save_checkpoint` method that returns plain data and writes no files.

    It is called without a temporary folder, which saves time. Overriding methods must be marked
    themselves.
    """
    _gives_data.add(save_checkpoint)
    return save_checkpoint


class Trainable:
    """The base class of all trainables: trains one iteration at a time, from settings and a seed.

    Args:
        config: the settings, a plain dict; deep-copied.
        context: facts about the trial, such as its seed and folder; None for defaults.
        logger_creator: makes a logger from the settings, which gets every result. Its ``logdir``
            takes precedence over the context's.
    """

    exactness: ClassVar[str] = "as saved"
    """Words that `sweep show` prints on how exactly a checkpoint of this class restores.
    Trainers measure a level."""
    unsafe_pickle: ClassVar[bool] = False
    """True if `save_checkpoint` may return data that is not plain. It is pickled, and the
    checkpoint signed. Loading a pickle runs its writer's code, so other classes refuse pickles."""

    depends_on_seed: ClassVar[bool] = False
    """True if results differ between seeds, so that several seeds are needed to distinguish good
    settings from lucky ones. Sweeps with asha then use ``seeds: auto`` unless the spec says
    otherwise."""
    hands_over: ClassVar[bool] = False
    """True if `get_state` may be called in another thread while `step` runs. It then returns the
    state of the last report with a checkpoint."""
    fixed_keys: ClassVar[frozenset[str]] = frozenset()
    """Dotted names of settings that a trial must not change when it continues from another
    trial's checkpoint, as in population-based training: it inherits them. A name includes the
    settings within it, and ``*`` stands for any one part of a name."""
    config_class: "ClassVar[type[Settings] | None]" = None
    """Pydantic model of the settings; None if the class does not declare its settings."""
    takes_other_settings: ClassVar[bool] = True
    """True if schema and reference allow settings that `config_class` does not have. It decides
    nothing else: `check_config` refuses unknown settings. Without a `config_class` it has no
    effect."""
    at_checkpoint = True
    """True if a checkpoint saved now would contain everything done so far.

    It is False only for a training function that has run on since its last report with a
    checkpoint."""
    has_ended = False
    """True if the last `step` found that training was over already, and trained nothing.

    Its result, with ``done: True``, repeats that of the last iteration and is not counted."""
    gives_copies = False
    """True if training never changes a state that `get_state` has returned, so that it may be
    packed later.

    Such a `get_state` also draws from no global stream."""
    lingers = False
    """True if code of the trial, such as a thread, still runs after `stop`: the process must
    then be ended before another trial uses it."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        context: TrialContext | None = None,
        logger_creator: LoggerCreator | None = None,
    ) -> None:
        self.context = context or TrialContext()
        self.config: Mapping[str, Any] = copy.deepcopy(dict(config or {}))
        self._counters = Counters()
        self._start_log(logger_creator)
        rng.seed_global(self.context.seed, "global")
        try:
            self.setup(copy.deepcopy(dict(self.config)))
        except BaseException:
            self._result_log.close()
            raise

    @property
    def is_random(self) -> bool | None:
        """True if the results so far may depend on random numbers, False if they cannot.

        Returns None if that is unknown, as for most trainables.
        """
        return None

    # ---- what a subclass writes -------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Build everything from the settings; called once, by the constructor."""

    def step(self) -> dict[str, Any]:
        """Run one iteration, seconds to minutes, and return its metrics; subclasses define it.

        A result with ``done: True`` ends the trial.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step()")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | Path | None:
        """Return everything that determines the future as plain data, or write it as files.

        If it writes files into `checkpoint_dir`, it returns None, that folder, or a path in it. A
        class that does not define it cannot save, and NotImplementedError is raised.
        """
        raise NotImplementedError(f"{type(self).__name__} must define save_checkpoint()")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore what `save_checkpoint` returned or wrote; subclasses that save define it.

        Args:
            checkpoint: the returned dict, or the path of a folder with the written files. If a
                path in the folder was returned, it is that path in the new folder.
        """
        raise NotImplementedError(f"{type(self).__name__} must define load_checkpoint()")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Apply new settings to this object without building it anew; True if that was possible.

        Returns False by default: a new object is then made.
        """
        return False

    def cleanup(self) -> None:
        """End child processes, and close files and environments; called by `stop`.

        Does nothing by default.
        """

    def log_result(self, result: dict[str, Any]) -> None:
        """Receive each complete result; for subclasses to override. Does nothing by default."""

    def remembers(self) -> dict[str, Any]:
        """Return expensive findings that hold for every trial with the same settings.

        The result is name → plain JSON data, with names that distinguish the settings. They are
        kept in each checkpoint and in the sweep's ledger, and later trials get them as
        ``self.context.remembered``. The first value of a name is final. Empty by default.
        """
        return {}

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Write the model in these formats into `export_dir`; return format → path.

        For subclasses to override; raises NotImplementedError by default.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot export {', '.join(export_formats)}: "
            f"it has no export_model(folder) that would write it"
        )

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> dict[str, float] | None:
        """Return name → amount of the resources that one trial needs, such as ``cpu`` and ``gpu``.

        Returns None for one CPU.
        """
        return None

    @classmethod
    def gpu_remark(cls, config: Mapping[str, Any]) -> str:
        """Return one line that says why training on the GPU is not faster with these settings.

        It is empty, as by default, if it may be faster or no GPU is used.
        """
        return ""

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise `trainables.errors.ConfigError` for settings that cannot work.

        There are none by default.
        """

    @classmethod
    def complete_config(
        cls, config: Mapping[str, Any], stop: Mapping[str, float]
    ) -> dict[str, Any]:
        """Return a new trial's settings, with those that follow from its stopping criteria added.

        `stop` is name of a result → value at which the trial ends. The length of a schedule is such
        a setting: it is recorded, so that changing the criteria later does not change the schedule
        of old trials. Nothing is added by default.
        """
        return dict(config)

    @classmethod
    def show_metrics(cls, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Return a new trial's settings, changed so that its results contain the metrics `names`.

        Changes something only if a setting decides which metrics results contain; by default
        nothing.
        """
        return dict(config)

    @classmethod
    def result_names(cls, config: Mapping[str, Any]) -> Collection[str] | None:
        """Return the names of all metrics in results with these settings, nested ones as paths.

        A name that ends with ``/`` stands for all below it, and `results.ANY_NAME` for names that
        are not known in advance. Returns None if no name is known in advance, as by default.
        """
        return None

    @classmethod
    def settle_config(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return key → chosen value of settings that are ``auto``, to be recorded with a new trial.

        So a trial continues as it began even if a later version would choose otherwise. Empty by
        default.
        """
        return {}

    @classmethod
    def align_settled(cls, values: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chosen ``auto`` values to record with a later trial of a sweep.

        `values` are those that `settle_config` returned for this trial, `first` those recorded with
        the sweep's first trial. Keys that `first` lacks are dropped. A class whose values depend on
        the machine overrides this and copies these from `first`, so that they are equal in all
        trials.
        """
        return {key: value for key, value in values.items() if key in first}

    @classmethod
    def as_lane(cls, config: Mapping[str, Any], lanes: int) -> dict[str, Any]:
        """Return the settings for training in one compiled program together with other trials.

        The program computes `lanes` trials side by side. `check_config` refuses the result if a
        setting is impossible there. Raises ConfigError if this class has no such program.
        """
        problem = (
            f"{cls.__name__} cannot train several trials in one compiled program (in lanes), as "
            "the pool stack does"
        )
        hint = "use another pool, or train ppo or dqn"
        raise ConfigError("trainable", cls.__name__, hint=hint, problem=problem)

    @classmethod
    def lane_shape(cls, config: Mapping[str, Any]) -> Hashable:
        """Return a value that is equal for settings whose trials can share one compiled program.

        It is None by default.

        Args:
            config: settings that `as_lane` returned.
        """
        return None

    @classmethod
    def can_be_lane(cls) -> bool:
        """Return whether trials of this class can train together in one compiled program.

        The class itself has to define `as_lane`: a class derived from one that does may compute
        something that the program does not.
        """
        return cls is not Trainable and "as_lane" in vars(cls)

    @classmethod
    def train_together(cls, several: Sequence["Trainable"]) -> None:
        """Compute the next iteration of several trials that share a compiled program, at once.

        Each trainable's `train` then returns its result. Does nothing by default: each then trains
        in its own `train`.
        """

    def train(self) -> dict[str, Any]:
        """Run one `step` and return its result, completed with the keys that every result has.

        The iteration is counted, and the result passed to the user's logger; not so if it only
        reports the end of training (`has_ended`). Raises TrainableError if `step` returns no dict.
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
    def can_save(cls, config: Mapping[str, Any] | None = None) -> bool:
        """Return whether a trial of this class can be stopped and continued.

        By default that is so if the class defines `save_checkpoint`, whatever the settings are.
        """
        return cls.save_checkpoint is not Trainable.save_checkpoint

    @classmethod
    def writes_files(cls) -> bool:
        """Return whether `save_checkpoint` may write files: it is not marked with `gives_data`."""
        return cls.save_checkpoint not in _gives_data

    @classmethod
    def can_export(cls) -> bool:
        """Return whether `export_model` can write any format."""
        return cls.has_own_export() or cls._export_model is not Trainable._export_model

    @classmethod
    def has_own_export(cls) -> bool:
        """Return whether the class defines a method ``export_model(folder)`` of its own.

        It then decides what it writes; the method of this base class takes formats.
        """
        return cls.export_model is not Trainable.export_model

    def write_own_export(self, folder: Path) -> None:
        """Write the model into `folder` by the class's own method ``export_model(folder)``."""
        self.export_model(folder)  # type: ignore[arg-type]  # a subclass's own, see `has_own_export`

    def get_state(self) -> dict[str, Any]:
        """Return everything that determines the future.

        The entries are ``trainable``, ``counters``, ``streams``, and ``remembered`` if `remembers`
        returned anything. The global streams are read before `save_checkpoint` and restored after
        it, so that saving has no side effects even if the subclass draws random numbers in it.

        Raises:
            StateError: `save_checkpoint` returned something that `load_checkpoint` could not be
                given.
        """
        name = type(self).__name__
        streams = rng.capture_global()
        place = temporary_folder(self.context.logdir) if self.writes_files() else nullcontext("")
        with place as folder:
            returned: object = self.save_checkpoint(folder)
            saved = _state_entries(returned, folder, name, self.unsafe_pickle)
        if not self.gives_copies:
            rng.restore_global(streams)
        if type(self).load_checkpoint is Trainable.load_checkpoint:
            remedy = f"define {name}.load_checkpoint(checkpoint), which restores it"
            raise StateError(f"{name}.save_checkpoint()", "a state that it cannot load", remedy)
        remembered = self.remembers()
        return {
            "trainable": saved,
            "counters": self._counters.get_state(),
            "streams": streams,
            **({"remembered": remembered} if remembered else {}),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned, with counters and the global random streams.

        Its remembered findings replace those of the same names in `context`. A state of another
        class raises errors of any kind.
        """
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
        """Write one checkpoint file into `checkpoint_dir` (default: `logdir`); return its path.

        Raises StateError if the state contains a value that cannot be stored.
        """
        state = self.get_state()
        header = {"trainable": type(self).__name__, "exactness": self.exactness}
        step = int(state["counters"]["training_iteration"])
        folder = Path(checkpoint_dir or self.logdir)
        return file.write(folder, step, header, state).path

    def restore(self, checkpoint: str | Path) -> None:
        """Continue from a file that `save` wrote; raises CheckpointError if it cannot be used.

        The state passes through `adapt_state` first.
        """
        self.continue_from(file.read(Path(checkpoint)).state, checkpoint, adapt=True)

    def save_to_object(self) -> bytes:
        """Write a checkpoint as `save` does, and return its files as the bytes of a tar archive."""
        with tempfile.TemporaryDirectory() as folder, io.BytesIO() as packed:
            self.save(folder)
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(folder, arcname="")
            return packed.getvalue()

    def restore_from_object(self, packed: bytes) -> None:
        """Continue from the checkpoint in a tar archive that `save_to_object` returned.

        Raises CheckpointError for anything else.
        """
        with tempfile.TemporaryDirectory() as folder:
            try:
                with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                    archive.extractall(folder, filter="data")
            except (tarfile.TarError, OSError, ValueError) as error:
                raise WrongFormat(
                    "the given bytes", f"this is not an archive of a checkpoint: {error}"
                ) from error
            found = [one for one in Path(folder).iterdir() if file.parse_name(one.name)]
            if len(found) != 1:
                raise WrongFormat(
                    "the given bytes",
                    f"this archive contains {len(found)} checkpoints; expected one",
                )
            self.restore(found[0])

    def adapt_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a saved state in the form in which `restore` loads it; by default unchanged.

        If other settings make an exact continuation impossible, a class may return a changed state
        from which to continue inexactly. A sweep does not call this: its trials continue exactly or
        not at all.
        """
        return state

    def continue_from(
        self, state: Mapping[str, Any], checkpoint: object, adapt: bool = False
    ) -> None:
        """Restore a state by `set_state`.

        Args:
            state: a state that `get_state` returned.
            checkpoint: name of the checkpoint in errors.
            adapt: True to pass the state through `adapt_state` first.

        Raises:
            WrongFormat: the state does not fit this class: `set_state` raised anything but a
                TrainableError, which is raised as it is.
        """
        try:
            self.set_state(self.adapt_state(state) if adapt else state)
        except TrainableError:
            raise
        except Exception as error:  # a state of another shape fails in any way
            reason = f"does not fit this {type(self).__name__}: {type(error).__name__}: {error}"
            raise WrongFormat(checkpoint, printable(reason)[:300]) from error

    def reset(self, config: Mapping[str, Any], context: TrialContext) -> bool:
        """Become another trial, with new settings and context, without being built anew.

        The user's logger is closed and made again, the global random streams are seeded, and
        counting begins at 0. Returns False if `reset_config` refuses the settings; the object must
        not be used any more then.
        """
        self.config, self.context = copy.deepcopy(dict(config)), context
        self._result_log.close()
        self._start_log(self._result_log.create)
        rng.seed_global(context.seed, "global")
        if not self.reset_config(copy.deepcopy(dict(self.config))):
            return False
        self._counters = Counters()
        return True

    def export_model(
        self, export_formats: str | Sequence[str], export_dir: str | Path | None = None
    ) -> dict[str, str]:
        """Write the trained model in each format into a folder; return format → path.

        Raises NotImplementedError if the class writes no models.

        Args:
            export_formats: name of a format, or of several.
            export_dir: folder for the files; `logdir` by default.
        """
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
        """Play episodes with the trained policy; return the total reward and length of each.

        The keys are ``episode_reward`` and ``episode_len``.

        Args:
            seed: seed of environments and actions; the same seed and weights give the same
                episodes.
            video: folder for an MP4 file of each episode, or None.
            window: True to show the environment in a window.
            most_steps: limit of environment steps of all episodes together; those for pictures do
                not count.

        Raises:
            NotImplementedError: this class cannot play.
            TooManySteps: the episodes take more steps.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no episodes to play: it does not define play()"
        )

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
        """Play episodes with a model that was exported to `file`, without a trainer.

        `card` is the content of the JSON description in the model's folder. The other arguments and
        the result are those of `play`.
        """
        raise NotImplementedError(
            f"{cls.__name__} has no episodes to play: it does not define play_exported()"
        )

    def stop(self) -> None:
        """End this trainable, which cannot be used any more: `cleanup`, and close the logger."""
        try:
            self.cleanup()
        finally:
            self._result_log.close()

    @property
    def iteration(self) -> int:
        """Number of finished iterations since the trial began, restarts included."""
        return self._counters.iteration

    @property
    def training_iteration(self) -> int:
        """Ray Tune's name for `iteration`."""
        return self.iteration

    @property
    def trial_id(self) -> str:
        """Id of the trial in its sweep; ``default`` outside one."""
        return self.context.trial_id

    @property
    def trial_name(self) -> str:
        """Readable name of the trial."""
        return self.context.trial_name

    @property
    def trial_resources(self) -> dict[str, float]:
        """Name → amount of each resource that is reserved for the trial."""
        return dict(self.context.resources)

    @property
    def logdir(self) -> str:
        """Folder for files of the trainable.

        If the context has none, it is ``results/{class}_{env}_{time}``, chosen at the first access.
        """
        if self.context.logdir is None:
            env = re.sub(r"[^\w.-]+", "_", str(self.config.get("env", "")))
            stamp = datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
            name = "_".join(part for part in (type(self).__name__, env, stamp) if part)
            logdir = fresh_path(Path("results").resolve() / name)
            self.context = replace(self.context, logdir=logdir)
        return str(self.context.logdir)

    def _start_log(self, create: LoggerCreator | None) -> None:
        """Make the user's logger with `create`; if it has a folder, use that as `logdir`."""
        self._result_log = ResultLog(create, self.config)
        if self._result_log.folder is not None:
            self.context = replace(self.context, logdir=self._result_log.folder)

    def _complete(self, result: dict[str, Any], elapsed: float) -> dict[str, Any]:
        """Count an iteration of `elapsed` seconds.

        Return its result with the standard keys added.
        """
        who = {"trial_id": self.trial_id, "experiment_tag": self.trial_name, "config": self.config}
        return self._counters.complete(result, elapsed, who, is_new=not self.has_ended)


def _state_entries(returned: object, folder: str, name: str, pickles: bool) -> dict[str, Any]:
    """Return the entries of a state for what `save_checkpoint` returned or wrote into `folder`.

    Entries are ``data`` (None if it wrote files), ``files`` and, if it returned a path in the
    folder, ``path``. `name` is the class's name; `pickles` is True if it has opted in to pickles.

    Raises:
        StateError: there is nothing, or something that `load_checkpoint` could not be given.
    """
    place = f"{name}.save_checkpoint()"
    files = read_files(Path(folder), place) if folder else {}
    if returned is None or isinstance(returned, str | Path):
        path = "" if returned is None else _in_folder(Path(returned), Path(folder), place)
        if not files:
            remedy = (
                "return a dict ({} if there is nothing to save), or write files into the folder"
            )
            raise StateError(place, "None, without a file in the folder,", remedy)
        return {"data": None, "files": files, **({"path": path} if path else {})}
    if not pickles and not isinstance(returned, Mapping):
        remedy = "return a dict of plain data, or write files into the folder that it is given"
        raise StateError(place, f"{type_of(returned)}, {shorten(returned)},", remedy)
    if files:
        found = f"what it returned in addition to files ({', '.join(sorted(files))})"
        remedy = "return a dict, or write files and return None, but not both"
        raise StateError(place, printable(found), remedy)
    return {"data": unsafe_pickle.pack(returned, name, pickles), "files": {}}


def _in_folder(returned: Path, folder: Path, place: str) -> str:
    """Return a path that `save_checkpoint` returned, relative to its folder; "" for the folder.

    Raises StateError if it is not in the folder. `place` names the value in errors.
    """
    path, root = returned.resolve(), folder.resolve()
    if not path.is_relative_to(root) or not path.exists():
        found = f"the path {shorten(str(returned))}, which is not in the folder that it was given,"
        raise StateError(place, found, "write the files there, and return None or that folder")
    return "" if path == root else path.relative_to(root).as_posix()
