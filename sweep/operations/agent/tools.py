"""The tools of a model: arguments as settings, answers as plain data, refusals in one line.

No argument is a path, and each answer is made of chosen fields: numbers, settings and reasons. The
names of sweeps are looked up among those of the root, and never joined to a path before.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from sweep.core.errors import (
    BadConfig,
    Source,
    SweepError,
    UnknownName,
    shorten_message,
    without_password,
)
from sweep.ledger.folder import Folder, free_name
from sweep.ledger.requests import Answer, Verb
from sweep.operations import control_client
from sweep.operations.agent import permission, running
from sweep.operations.agent.narrowing import Narrowing
from sweep.operations.agent.permission import Permission, Remaining
from sweep.spec.validation import validate as checked
from sweep.views import explanation, lookup, overview, progress
from trainables.core.settings import Settings
from trainables.errors import shorten

Data = dict[str, Any]

#: Author of suggestions.
AUTHOR = "an agent"
#: Seconds to wait for a driver's answer.
PATIENCE_S = 20.0
#: Newest decisions that `explain` returns, and rows of each of their tables.
MOST_DECISIONS, MOST_ROWS = 30, 20
#: Newest sweeps that `status` returns.
MOST_SWEEPS = 50
#: Maximum number of a reason's characters.
LONGEST_WHY = 500
#: Keys of a trial's overview that a model sees.
_TRIAL = (
    *("trial", "status", "score", "expected", "expected_error", "objectives", "violates"),
    *("iterations", "steps", "own_steps", "seconds", "settings", "suggested", "reason"),
)
#: Keys of a sweep's overview that a model sees.
_STATUS = (
    *("name", "state", "metric", "mode", "trials", "wanted", "done", "counts", "why", "best"),
    *("fraction", "elapsed_s", "left_s", "steps", "exhausted", "changes", "suggested", "outlook"),
    "rungs",
)
#: Keys of a running trial that a model sees.
_RUNNING = ("trial", "iteration", "time", "goal", "value", "seconds", "settings")
#: Keys of a validated spec that a model sees.
_PREVIEW = (
    *("trials", "metric", "mode", "searcher", "scheduler", "time_attr", "rungs", "stop", "jobs"),
    *("space", "points", "initial", "warnings", "costs", "restore", "cut_short"),
)

SpecName = Annotated[str, Field(description="Name of an allowed spec.")]
SweepName = Annotated[str, Field(description="Name of a sweep, as run and status give it.")]
NARROW: Any = Field(
    default_factory=dict,
    description="Searched parameter → the part of its values that is left: {between: [low, high]} "
    "of a range, or {among: [value, …]}. Other parameters keep all their values.",
)


class SpecArguments(Settings):
    """Arguments of the tool `validate`."""

    spec: SpecName
    """Name of an allowed spec."""
    narrow: dict[str, Narrowing] = NARROW
    """Searched parameter → the part of its values that is kept."""


class RunArguments(SpecArguments):
    """Arguments of the tool `run`."""

    trials: int | None = Field(
        None, description="Number of trials; default: those of the spec, or all that are left."
    )


class StatusArguments(Settings):
    """Arguments of the tool `status`."""

    name: SweepName | None = None
    """Name of the sweep; None for an overview of all."""


class SweepArguments(Settings):
    """Arguments of the tool `best`."""

    name: SweepName
    """Name of the sweep."""


class ResultsArguments(SweepArguments):
    """Arguments of the tool `results`."""

    top: int = Field(20, ge=1, le=200, description="Number of trials, best first.")


class TrialArguments(SweepArguments):
    """Arguments of the tool `explain`."""

    trial: int | Literal["best"] = Field("best", description="Number of a trial, or best.")


class SuggestionArguments(SweepArguments):
    """Arguments of the tool `suggest`."""

    settings: dict[str, Any] = Field(
        description="Searched parameter → value; the searcher proposes the others."
    )
    why: str = Field(
        "", max_length=LONGEST_WHY, description="Reason, recorded in the history of the sweep."
    )


class StopArguments(SweepArguments):
    """Arguments of the tool `stop`."""

    trials: Annotated[tuple[int, ...], Field(strict=False, max_length=1000)] = Field(
        (), description="Numbers of the trials to stop; none: the whole sweep."
    )


@dataclass(frozen=True)
class Tool:
    """A function that a language model may call, with the description that it sees."""

    name: str
    """Name of the tool, equal to that of the command of ``sweep`` that does the same."""
    arguments: type[Settings]
    """Model of the tool's arguments, which checks what the language model sent."""
    answer: Callable[[Any], Data]
    """Method of `Toolbox` that takes the checked arguments and returns the answer."""
    read_only: bool
    """True if a call changes nothing, neither a sweep nor a file."""
    is_final: bool = False
    """True if a call ends something that only a person can continue."""
    trains: bool = False
    """True if a call starts a trainable, so that such calls run one after another."""

    @property
    def description(self) -> str:
        """Description for the language model: the docstring of `answer` without ``Raises:``."""
        return " ".join((self.answer.__doc__ or "").split("Raises:")[0].split())

    def call(self, raw: Mapping[str, Any]) -> Data:
        """Check the arguments `raw` and return the tool's answer, which JSON can represent.

        NaN and infinite numbers become None; texts are shortened, and passwords in them removed.

        Raises:
            UsageError: an argument is not allowed.
            SweepError: the tool refused the call, or a ledger cannot be read.
        """
        found = self.answer(checked(self.arguments, dict(raw), Source()))
        plain: Data = _safe_texts(json.loads(json.dumps(found), parse_constant=lambda _: None))
        return plain


class Toolbox:
    """All tools of one permission, by name, and the drivers that they started."""

    def __init__(self, allowed: Permission) -> None:
        self.allowed = allowed
        self._started: list[subprocess.Popen[bytes]] = []
        """Drivers that this server started, whose ends are read, so that they leave the system's
        table of processes."""
        self.tools = {tool.name: tool for tool in self._tools()}

    def _tools(self) -> Iterator[Tool]:
        """Yield the tools, each with the method that answers its calls."""
        yield Tool("validate", SpecArguments, self.validate, read_only=True, trains=True)
        yield Tool("run", RunArguments, self.run, read_only=False, trains=True)
        yield Tool("status", StatusArguments, self.status, read_only=True)
        yield Tool("results", ResultsArguments, self.results, read_only=True)
        yield Tool("explain", TrialArguments, self.explain, read_only=True)
        yield Tool("best", SweepArguments, self.best, read_only=True)
        yield Tool("suggest", SuggestionArguments, self.suggest, read_only=False)
        yield Tool("stop", StopArguments, self.stop, read_only=False, is_final=True)

    def find(self, name: str) -> Tool:
        """Return a tool; UnknownName if there is none of this name."""
        if name not in self.tools:
            raise UnknownName("tool", name, self.tools)
        return self.tools[name]

    # ---- the tools; the docstrings are their descriptions -----------------------------------

    def validate(self, arguments: SpecArguments) -> Data:
        """Check an allowed spec, perhaps with a smaller space, by training it for some seconds.

        Returns its space, the expected costs in time and steps, and warnings. Nothing is written.

        Raises:
            UsageError: the spec is not allowed or not valid, the trainable failed, or nothing is
                left of trials or budget.
        """
        allowed, left = self.allowed, self.allowed.remaining()
        _, changes = allowed.prepare(arguments.spec, arguments.narrow, None, left)
        file = allowed.file(arguments.spec)
        seen = running.validate(file, changes, allowed.jobs, allowed.root)
        return {**_pick(seen, _PREVIEW), **_remaining_data(left)}

    def run(self, arguments: RunArguments) -> Data:
        """Start a sweep of an allowed spec, perhaps with a smaller space and fewer trials.

        Returns the name of the sweep as soon as it runs, without waiting for its end; status tells
        how far it is. One sweep runs at a time.

        Raises:
            UsageError: another sweep runs, the spec is not allowed or not valid, or nothing is left
                of trials or budget.
            SweepError: the sweep did not begin in time.
        """
        allowed = self.allowed
        self._started = [one for one in self._started if one.poll() is None]
        with allowed.claim() as claim:
            left = allowed.remaining()
            permission.require_idle(left)
            spec, changes = allowed.prepare(
                arguments.spec, arguments.narrow, arguments.trials, left
            )
            folder = Folder(allowed.root, free_name(allowed.root, arguments.spec))
            log = allowed.log(folder.name)
            file = allowed.file(arguments.spec)
            self._started.append(running.begin(folder, file, changes, allowed.jobs, log, claim))
        return {
            "name": folder.name,
            "state": lookup.state(folder, lookup.read_history(folder)).value,
            "trials": spec.trials,
            "space": spec.space.describe(),
            **_remaining_data(allowed.remaining()),
        }

    def status(self, arguments: StatusArguments) -> Data:
        """Report the progress of a sweep: state, counts, best trial, running trials, time left.

        Without a name: the newest sweeps, the allowed specs, and what is left of trials and budget.

        Raises:
            UsageError: there is no sweep of this name.
        """
        if arguments.name is None:
            sweeps, problems = lookup.read_all(self.allowed.root)
            newest = sorted(sweeps, key=lambda sweep: sweep.created_at)[-MOST_SWEEPS:]
            rows = [_pick(overview.overview(sweep, time.time()), _STATUS) for sweep in newest]
            more = {"sweeps_in_all": len(sweeps)} if len(rows) < len(sweeps) else {}
            unread = {"unreadable": problems[:MOST_SWEEPS]} if problems else {}
            specs = sorted(self.allowed.files)
            return {"sweeps": rows, **more, **unread, "specs": specs, **self._remaining_if_known()}
        folder = self.allowed.find(arguments.name)
        sweep = lookup.read(folder, curves=False)
        notes = progress.NewestNotes().read(folder, sweep.history)
        data = overview.status(sweep, notes, time.time())
        rows = [_pick(row, _RUNNING) for row in data["running"]]
        return {**_pick(data, _STATUS), "running": rows, **self._remaining_if_known()}

    def _remaining_if_known(self) -> Data:
        """Return what the permission has left, as `_remaining_data` does.

        If a ledger cannot be read, it is ``{"left": {"unknown": MESSAGE}}``.
        """
        try:
            return _remaining_data(self.allowed.remaining())
        except SweepError as error:
            return {"left": {"unknown": str(error)}}

    def results(self, arguments: ResultsArguments) -> Data:
        """List the best trials of a sweep with scores and settings.

        Raises:
            UsageError: there is no sweep of this name.
        """
        data = overview.results(lookup.read(self.allowed.find(arguments.name), curves=False))
        rows = [_pick(row, _TRIAL) for row in data["trials"][: arguments.top]]
        head = _pick(data, ("name", "metric", "mode", "front"))
        return {**head, "trials": rows, "trials_in_all": len(data["trials"])}

    def explain(self, arguments: TrialArguments) -> Data:
        """Explain the newest decisions about a trial, with the numbers that were compared.

        Raises:
            UsageError: there is no such sweep or trial.
        """
        folder = self.allowed.find(arguments.name)
        sweep = lookup.read(folder)
        asked = arguments.trial
        if asked == "best":
            trial = overview.best_trial(sweep.history, folder)
        else:
            trial = overview.find_trial(sweep.history, folder.name, asked)
        data = explanation.explain(sweep, trial.number)
        data["decisions"] = [_short(step) for step in data["decisions"][-MOST_DECISIONS:]]
        if data["stands"] is not None:
            data["stands"] = _short(data["stands"])
        return {**data, "settings": dict(trial.searched)}

    def best(self, arguments: SweepArguments) -> Data:
        """Show the best trial of a sweep: scores, settings, and how certain it is.

        Raises:
            UsageError: there is no sweep of this name, or it has no best trial.
        """
        data = overview.best(lookup.read(self.allowed.find(arguments.name), curves=False))
        return _pick(data, ("name", "metric", "mode", *_TRIAL, "pick", "trials", "scored"))

    def suggest(self, arguments: SuggestionArguments) -> Data:
        """Suggest settings to a sweep, for one of its next new trials.

        The trial counts for the sweep's number of trials.

        Raises:
            UsageError: there is no sweep of this name, or it cannot grant the request.
        """
        folder = self.allowed.find(arguments.name)
        given = arguments.settings, arguments.why, AUTHOR, PATIENCE_S
        return _answer(*control_client.suggest(folder, *given))

    def stop(self, arguments: StopArguments) -> Data:
        """End a sweep that was started here, or some of its trials, at the next checkpoint.

        Only a person can continue a stopped sweep.

        Raises:
            UsageError: there is no sweep of this name, a person started it, or it cannot grant the
                request.
        """
        if bad := [number for number in arguments.trials if not 0 <= number < 2**31]:
            problem = f"{shorten(bad[0])} is not the number of a trial"
            raise BadConfig(
                "trials", bad[0], hint="give whole numbers of at least 0", problem=problem
            )
        folder = self.allowed.find_own(arguments.name)
        body = {"trials_named": list(arguments.trials)}
        return _answer(*control_client.ask(folder, Verb.STOP, body, PATIENCE_S))


def _safe_texts(value: Any) -> Any:
    """Return a copy of JSON data whose texts are shortened, without passwords, and valid in UTF-8.

    Keys of mappings are texts, too.
    """
    if isinstance(value, str):
        return shorten_message(without_password(value.encode(errors="replace").decode()))
    if isinstance(value, list):
        return [_safe_texts(one) for one in value]
    if isinstance(value, dict):
        return {_safe_texts(key): _safe_texts(one) for key, one in value.items()}
    return value


def _pick(data: Mapping[str, Any], keys: tuple[str, ...]) -> Data:
    """Return the entries of `data` under those of `keys` that it has."""
    return {key: data[key] for key in keys if key in data}


def _remaining_data(remaining: Remaining) -> Data:
    """Return ``{"left": {"trials": …, "budget": {key: amount left}}}`` for an answer."""
    return {"left": _pick(asdict(remaining), ("trials", "budget"))}


def _short(step: Mapping[str, Any]) -> Data:
    """Return a decision about a trial with at most `MOST_ROWS` rows in each of its tables."""
    tables = [{**table, "rows": table["rows"][:MOST_ROWS]} for table in step["tables"]]
    return {**step, "tables": tables}


def _answer(answer: Answer | None, driven: bool) -> Data:
    """Return a driver's answer as the tool's: ``state``, done or waiting, and ``answer``, a text.

    `driven` is true if a driver runs. If `answer` is None, the state is ``waiting``, and the text
    says that the driver has not answered yet, or that none runs.
    """
    if answer is not None:
        return {"state": "done", "answer": answer.text}
    waits = "the driver has not answered yet" if driven else "no driver runs; it waits for one"
    return {"state": "waiting", "answer": waits}
