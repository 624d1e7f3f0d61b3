"""Measures environments before they are trained on, without ever waiting for one that hangs.

An `Inquiry` makes and measures the environment in a child process while its caller does other
things. If a call does not return in time, the child is killed, and the error names the call.
Environments that cannot be sent to a child are measured here, watched by a thread
(`trainables.envs.exactness.watching`). Times are in seconds.

Known levels are not measured again: those of gymnasium's own environments
(`trainables.envs.exactness.known`), from a checkpoint or a ledger (`remembered`), from this
process, or from a file in a folder that several processes share, of which one measures and the
others wait.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import gymnasium

from trainables.core import rng
from trainables.core.importing import import_module
from trainables.core.processes import child
from trainables.core.processes.child import ChildProcess, Patience
from trainables.envs import registry
from trainables.envs.calls.faults import closing, logging_once
from trainables.envs.exactness.comparison import SEED
from trainables.envs.exactness.known import known_level
from trainables.envs.exactness.levels import EXACT, Level, Measured, examine
from trainables.envs.exactness.watching import (
    Hangs,
    announce_call,
    hang_error,
    hang_from_message,
    listening,
    read_stack,
    watched,
)
from trainables.envs.external.polled import SpacesOnlyEnv
from trainables.envs.kinds.pool import ENVPOOL
from trainables.envs.make import (
    EnvironmentConfig,
    EnvSpaces,
    ObservationSettings,
    agents_spaces,
    checked_spaces,
    make_env,
)
from trainables.errors import ConfigError, NotImportable, WorkerDied, WorkerError, WorkerHangs

logger = logging.getLogger(__name__)

#: Duration from which a measurement is logged as slow, seconds.
SLOW_S = 20.0
#: Longest interval at which a child reports progress, seconds; shorter for short time limits.
BEAT_S = 1.0
#: Largest file with a measurement, bytes.
MOST_BYTES = 2**20
#: Settings that do not affect the measurement.
IRRELEVANT_SETTINGS = frozenset({"env_replay_limit", "env_measure_timeout_s"})

T = TypeVar("T")


@dataclass(frozen=True)
class Inspection:
    """The spaces and properties that an environment declares, as plain data for other processes."""

    spaces: EnvSpaces
    """Spaces of the environment; those of the first agent if there are several."""
    limit: int | None
    """Number of steps after which the environment ends an episode by itself, or None for no
    limit."""
    agents: Mapping[str, EnvSpaces] = field(default_factory=dict)
    """Agent → its spaces; empty for an environment of one agent."""
    calls_trainer: bool = False
    """True if the environment plays by itself and asks for actions (`ExternalEnv`), so that it can
    be neither stepped nor measured."""
    rows_per_step: int = 1
    """Largest number of rows that one policy gets in a step: the number of agents that it may
    control."""


#: (key, kind) → result of `measure_once`, and the objects that the key refers to.
_measurements: dict[object, tuple[Any, object]] = {}
#: Key → measurement in this process, and the objects that the key refers to.
_measured: dict[object, tuple[Measured, object]] = {}


# ---- what is asked ---------------------------------------------------------------------------


def inspect(config: EnvironmentConfig) -> Inspection:
    """Return what an environment declares; makes and closes one, once per process.

    If the environment hangs, the process ends with a message.

    Raises ConfigError if it cannot be made, or no policy can use its spaces.
    """
    return measure_once(config, "look", lambda: _inspect(config))


def measure_once(config: EnvironmentConfig, subject: str, find: Callable[[], T]) -> T:
    """Return the result of `find`, which makes an environment, from memory after the first call.

    `subject` names the result: `find` is called once per process, settings and subject, but again
    if it raised. If the environment hangs, this process ends with a message.
    """
    key, held = _local_key(config)
    if (key, subject) not in _measurements:
        with watched(config):
            _measurements[key, subject] = find(), held
    found: T = _measurements[key, subject][0]
    return found


def measure(config: EnvironmentConfig, restarts: bool = False) -> Measured:
    """Measure how exactly an environment can be restored, once per settings in this process.

    A child process measures, if one can; known levels are not measured. `restarts` is True if
    failed environments are replaced, also during the measurement. Raises ConfigError if a call
    hangs; without a child this process then ends.
    """
    with contextlib.closing(Inquiry(config, restarts)) as inquiry:
        return inquiry.measured()


def resolve(
    config: EnvironmentConfig,
    depends_on_clock: bool = False,
    measured: Callable[[EnvironmentConfig], Measured] = measure,
) -> tuple[EnvironmentConfig, Level]:
    """Decide how environments are made and saved, after measuring their exactness if needed.

    Returns the settings with that decision as `env_level` (A, B or C), and the exactness level of
    the training (A to D).

    Args:
        depends_on_clock: True if the clock influences the training: then nothing is exact, and
            nothing expensive is done for exactness.
        measured: returns the measurement; not called if it is not needed.

    Raises:
        ConfigError: `env_level` asks for more than was measured, or for A or B of EnvPool's.
    """
    if config.env_engine == ENVPOOL:
        if config.env_level in EXACT:
            why = "EnvPool's environments cannot give their state"
            given, other = config.env_level, f"env_engine: {ENVPOOL}"
            raise ConfigError.of_conflict("env_level", given, other, "auto or C", why)
        return config.model_copy(update={"env_level": "C"}), "D"
    if config.env_level == "C":
        return config, "D" if depends_on_clock else "C"
    measurement = measured(config)
    if config.env_level not in ("auto", measurement.level):
        why = f"this environment is {measurement.reasons[0]}"
        raise ConfigError.of_conflict("env_level", config.env_level, config.env, "auto or C", why)
    if depends_on_clock:
        cheap = measurement.level in ("A", config.env_level)
        return config.model_copy(update={"env_level": measurement.level if cheap else "C"}), "D"
    usable = "C" if measurement.level == "D" else measurement.level
    return config.model_copy(update={"env_level": usable}), measurement.level


class Inquiry:
    """Finds out one trainer's environment: its spaces, and how exactly it can be restored.

    A child process, started at once, makes and measures it. If another process of the sweep
    measures it already, no child starts, and `inspect` and `measured` wait for that one's file.
    None starts either if the result is known, or for `env_level` C.

    Args:
        restarts: True if failed environments are replaced, also during the measurement.
        remembered: results of `as_data` from earlier trials.
        shared: folder where all processes of a sweep keep measurements, or None.
        always_measures: True to measure even what this process or `known_level` knows already.
    """

    def __init__(
        self,
        config: EnvironmentConfig,
        restarts: bool = False,
        remembered: Mapping[str, Any] | None = None,
        shared: Path | None = None,
        always_measures: bool = False,
    ) -> None:
        self._config = config
        self._restarts = restarts
        self._name = _name_of(config, restarts)
        self._key, self._held = _local_key(config, restarts)
        self._began_at = time.perf_counter()
        self._child: _Child | None = None
        self._file = _SharedFile(None)
        self._found = Measured.of_data((remembered or {}).get(self._name or ""))
        if self._found is None and not always_measures:
            self._found = _measured[self._key][0] if self._key in _measured else known_level(config)
        if self._found is None and config.env_level != "C":
            self._file = _SharedFile(
                shared / f"{self._name}.json" if shared and self._name else None
            )
            if not self._file.busy:
                self._begin()

    def inspect(self) -> Inspection:
        """Return what the environment declares, such as its spaces; waits for the child process.

        If there is no child, or the child cannot make the environment, this process makes it once.
        Raises ConfigError if it cannot be made, a call hangs, or no policy can use its spaces.
        """
        self._wait_for_others()
        try:
            inspection = self._answer(_Child.seen)
        except _Died as error:
            problem = f"{self._config.env} could not be made: {error}"
            raise ConfigError("env", self._config.env, problem=problem) from error
        if inspection is None:  # it may be made in this process
            self._kill_child()
            return inspect(self._config)
        _measurements[_local_key(self._config)[0], "look"] = inspection, self._held
        return inspection

    def measured(self) -> Measured:
        """Return how exactly the environment can be restored; waits for the measurement.

        It is kept in this process and in the shared file, and a slow one is logged. Level C if two
        children died. Without a child it is made here, where a call that hangs ends the process.
        Raises ConfigError if the environment cannot be made, or a call hangs in a child.
        """
        self._wait_for_others()
        if self._found is None:
            self._found = self._measure()
            self._file.write(self._found)
            self._warn_if_slow(self._found.level)
        if self._key not in _measured:
            _measured[self._key] = self._found, self._held
        return self._found

    def as_data(self) -> dict[str, Any]:
        """Return name of the settings → measurement, as JSON data for trials with equal settings.

        Empty if nothing was measured or known yet, or if the settings have no such name.
        """
        if self._found is None or self._name is None:
            return {}
        return {self._name: self._found.as_data()}

    def close(self) -> None:
        """Kill the child, if it still runs, and release the shared file."""
        self._kill_child()
        self._file.close()

    def _begin(self) -> None:
        """Read the measurement from the shared file; if it has none, start a child.

        Raises Hangs if the process for which this one waited found that a call hangs.
        """
        with self._releasing_page():
            self._found = self._file.read(self._config)
        if self._found is None:
            self._child = self._start_child()

    def _wait_for_others(self) -> None:
        """Wait until the process that measures this environment is done, then read its result.

        If it left none, a child is started here. Does nothing if no other process measured it at
        the start, or after the first call. Called as late as possible.
        """
        if self._file.busy:
            with self._releasing_page():
                self._file.wait()
            self._begin()

    def _kill_child(self) -> None:
        """Kill the child, if there is one."""
        if self._child is not None:
            self._child.process.kill()
            self._child = None

    def _warn_if_slow(self, level: Level) -> None:
        """Log a warning if the measurement took more than `SLOW_S` seconds."""
        seconds = time.perf_counter() - self._began_at
        one = f"env_level: {level} measures only that level, " if level in EXACT else ""
        if seconds >= SLOW_S:
            logger.warning(
                "%s is slow: to measure, once per sweep, that it can be restored (level %s) took "
                "%.0f s; %senv_level: C measures nothing",
                *(self._config.env, level, seconds, one),
            )

    def _start_child(self) -> "_Child | None":
        """Start a child that measures, and return it.

        Returns None if the settings cannot be sent or no process may start.
        """
        packed = _pack(self._config, self._restarts)
        # A daemon may start no process, and nobody may where loky is not installed.
        with contextlib.suppress(AssertionError, ImportError, OSError):
            return None if packed is None else _Child(self._config, packed)
        return None

    @contextlib.contextmanager
    def _releasing_page(self) -> Iterator[None]:
        """Release the shared file if the block raises, so that other processes do not wait for it.

        If a call of the environment hangs (`Hangs`), that is written to the file first.
        """
        try:
            yield
        except Hangs as error:
            self._file.write(error)
            raise
        except BaseException:
            self._file.close()
            raise

    def _measure(self) -> Measured:
        """Return the measurement, made by the child, or in this process without a child.

        If two children die, the result is level C.
        """
        try:
            measurement = self._answer(_Child.measured)
        except _Died as error:
            return Measured("C", (f"not A: {error}",))
        if measurement is None:
            with watched(self._config):
                return _examined(self._config, self._restarts, inspect(self._config))
        return measurement

    def _answer(self, ask: Callable[["_Child"], T | None]) -> T | None:
        """Return what `ask` returns for the child; if that dies, for a second child.

        The second one takes the first one's place. Returns None if there is no child, or it cannot
        make the environment; raises _Died if the second one dies, too, ConfigError if a call hangs.
        """
        if self._child is None:
            return None
        with self._releasing_page():
            try:
                return ask(self._child)
            except _Died:
                self._child = self._start_child()
                return None if self._child is None else ask(self._child)


def remembered_measurement(
    config: EnvironmentConfig, restarts: bool, remembered: Mapping[str, Any]
) -> Measured | None:
    """Return an environment's measurement from `remembered`; None if it has none.

    `remembered` is what `Inquiry.as_data` returned in earlier trials.
    """
    return Measured.of_data(remembered.get(_name_of(config, restarts) or ""))


# ---- which environment it is -----------------------------------------------------------------


def _relevant(config: EnvironmentConfig) -> dict[str, Any]:
    """Return name → value of the settings that affect the measurement of an environment.

    Some that were added later are left out at their defaults, so that older names stay valid.
    """
    every = {name: value for name, value in dict(config).items() if name not in IRRELEVANT_SETTINGS}
    if config.env_engine != ENVPOOL:  # as environments were called before there was a choice
        del every["env_engine"]
    if config.observation_fn is None:  # likewise
        del every["observation_fn"]
    if not config.connectors:  # likewise
        del every["connectors"]
    return (
        every
        if config.observation_settings == ObservationSettings()
        else {**every, "observation_settings": vars(config.observation_settings)}
    )


def _name_of(config: EnvironmentConfig, restarts: bool) -> str | None:
    """Return a name of the settings' hash, equal in all processes, for files and JSON data.

    Returns None if the settings have no JSON form.
    """
    try:
        text = json.dumps([_relevant(config), restarts], sort_keys=True)
    except (TypeError, ValueError):
        return None
    return f"environment-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _local_key(config: EnvironmentConfig, restarts: bool = False) -> tuple[object, object]:
    """Return a key of these settings in this process's dicts, and objects to keep alive with it.

    Settings that cannot affect a measurement are left out of the key. `restarts` is True if failed
    environments are replaced while one is measured. The key contains the ids of the objects, the
    registered creators of the environment.
    """
    known = (registry.find(config.env), gymnasium.registry.get(config.env))
    name = _name_of(config, restarts) or repr((_relevant(config), restarts))
    return (name, *map(id, known)), known


def _inspect(config: EnvironmentConfig) -> Inspection:
    """Make an environment, return what it declares, and close it.

    The global random streams are preserved. Raises ConfigError if it cannot be made, or no policy
    can use its spaces.
    """
    with rng.preserve_global():
        rng.seed_global(SEED, "look")
        announce_call()
        with closing(make_env(config), config.env) as env:
            limit = env.spec.max_episode_steps if env.spec is not None else None
            both = env.observation_space, env.action_space
            agents = agents_spaces(config, *both)
            first = next(iter(agents.values())) if agents else checked_spaces(config, *both)
            return Inspection(first, limit, agents, isinstance(env.unwrapped, SpacesOnlyEnv))


def _examined(config: EnvironmentConfig, restarts: bool, inspection: Inspection) -> Measured:
    """Make and play environments in this process, and return how exactly they can be restored.

    One that calls the trainer, as `inspection` says, is at level D without that. `restarts` is True
    if failed environments are replaced. Raises ConfigError if the environment cannot be made.
    """
    if inspection.calls_trainer:
        return Measured("D", ("not A: it calls the trainer, so its state is unknown here",))
    return examine(config, restarts)


# ---- what several processes share ------------------------------------------------------------


class _SharedFile:
    """A file in the sweep's folder for one environment's measurement, and its lock.

    The process that holds the lock measures and writes; others wait. Without a path it is always
    empty.
    """

    def __init__(self, path: Path | None) -> None:
        self._descriptor = -1
        self._waited = False
        self.busy = False
        """True while another process measures and this one has not waited yet."""
        if path is None:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with contextlib.suppress(OSError):  # without it each measures for itself
            path.parent.mkdir(exist_ok=True)
            self._descriptor = os.open(path, flags, 0o644)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._waited = self.busy = True

    def wait(self) -> None:
        """Wait for the lock: until no other process measures. Sets `busy` to False."""
        self.busy = False
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def read(self, config: EnvironmentConfig) -> Measured | None:
        """Return the measurement in the file; None if there is none, or the file cannot be read.

        Raises Hangs if the file says that a call hung while this process waited for it. A process
        that did not wait gets None and measures again, since the environment may be repaired.
        """
        if self._descriptor < 0:
            return None
        try:
            content = json.loads(os.pread(self._descriptor, MOST_BYTES, 0))
        except (OSError, ValueError, RecursionError):
            return None
        if isinstance(content, dict) and isinstance(words := content.get("hangs"), str):
            if self._waited:
                raise hang_from_message(config, words)
            return None
        return Measured.of_data(content)

    def write(self, result: Measured | Hangs) -> None:
        """Write the measurement, or the message that a call hangs, and release the lock.

        Does nothing if the lock is released already. Errors of writing are ignored.
        """
        if self._descriptor < 0:
            return
        data = {"hangs": result.hint} if isinstance(result, Hangs) else result.as_data()
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(data).encode(), 0)
        self.close()

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


# ---- in a child ------------------------------------------------------------------------------


class _Died(Exception):
    """Raised when the child's process ended before it had answered."""


def _pack(config: EnvironmentConfig, restarts: bool) -> bytes | None:
    """Return the settings as bytes for a child, with what is registered under the env's name.

    Returns None if that cannot be pickled.
    """
    spec = gymnasium.registry.get(config.env)
    try:
        packed: bytes = cloudpickle.dumps((config, restarts, registry.find(config.env), spec))
    except Exception:  # noqa: BLE001 whatever an environment's settings hold may refuse in any way
        return None
    return packed


def _unpack(packed: bytes) -> tuple[EnvironmentConfig, bool]:
    """Return what `_pack` packed, the settings and `restarts`, in a child.

    Also registers the environment's creator under its name there; its module is imported.
    """
    config, restarts, creator, spec = cloudpickle.loads(packed)
    if creator is not None:
        registry.register_env(config.env, creator)
    if spec is not None:
        gymnasium.registry.setdefault(config.env, spec)
    entry = getattr(spec, "entry_point", None) or config.env
    if isinstance(entry, str) and ":" in entry and creator is None:
        with contextlib.suppress(NotImportable):  # making it says so
            import_module(entry)
    return config, restarts


class _Child:
    """The parent's end of a child that inspects an environment and then measures it.

    `packed` is what `_pack` returned.
    """

    def __init__(self, config: EnvironmentConfig, packed: bytes) -> None:
        self._config = config
        beat_s = min(BEAT_S, config.env_measure_timeout_s / 10)
        self._patience = Patience(config.env_measure_timeout_s + beat_s, "env_measure_timeout_s")
        self._inspection: Inspection | None = None
        self.process = ChildProcess("environment measured", _Server, (packed, beat_s), Patience())
        with contextlib.suppress(WorkerError):  # one that has just died is noticed when it is heard
            self.process.send("measure")

    def seen(self) -> Inspection | None:
        """Wait for what the environment declares; None if it cannot be made in the child.

        A second call returns the same. Raises ConfigError if a call hangs, _Died if the child died.
        """
        if self._inspection is None:
            self._read_until(Inspection)
        return self._inspection

    def measured(self) -> Measured | None:
        """Wait for the measurement, then end the child; None if it cannot be made in the child.

        Raises ConfigError if a call hangs, _Died if the child died.
        """
        found = self._read_until(Measured)
        if found is not None:
            self.process.close()
        return found

    def _read_until(self, last_kind: type[Inspection] | type[Measured]) -> Measured | None:
        """Read the child's messages until one of class `last_kind`, and keep an Inspection.

        Returns a `Measured` if that is the last one; else None, also if the child raised. The child
        is killed before an exception is raised.

        Raises:
            ConfigError: a call of the environment hangs.
            _Died: the process died.
        """
        try:
            kind = "note"
            while kind == "note":
                kind, content = self.process.receive_message(self._patience)
                if isinstance(content, Inspection):
                    self._inspection = content
                if isinstance(content, last_kind):
                    return content if isinstance(content, Measured) else None
        except WorkerHangs as error:
            self.process.kill()
            stack = read_stack(str(error))
            raise hang_error(self._config, stack, "it was measured in a separate process") from None
        except WorkerDied:
            self.process.kill()
            code = self.process.exitcode
            raise _Died(f"its process died while it was measured; exit code {code}") from None
        except WorkerError:  # a space of somebody's own may be readable there alone
            return None
        return None


class _Server:
    """The child's side: reports what the environment declares, then measures it.

    While it works, it sends a note to the parent at most every `beat_s` seconds, as a sign of life.
    """

    def __init__(self, packed: bytes, beat_s: float) -> None:
        self._pack = packed
        self._beat_s = beat_s
        self._noted_at = -beat_s

    @logging_once()
    def measure(self) -> Measured:
        """Inspect the environment, send the result as a note, measure, and return the measurement.

        Any exception means for the parent that the environment cannot be made here.
        """
        with listening(self._beat):
            config, restarts = _unpack(self._pack)
            child.note(seen := _inspect(config))
            return _examined(config, restarts, seen)

    def end(self) -> None:
        """Do nothing when the child is to end: no environment is open."""

    def _beat(self) -> None:
        """Send an empty note to the parent, unless one was sent less than `beat_s` seconds ago."""
        now = time.monotonic()
        if now - self._noted_at >= self._beat_s:
            self._noted_at = now
            child.note(None)
