"""A sweep as typed data: the contents of its YAML file, checked before anything runs.

    spec = load(find("quickstart"), ["trials=8"])
    spec == from_json(canonical_json(spec))

Paths into results use ``/``, paths into settings use dots. Times are in seconds. Unknown keys are
refused, never ignored.

space        the language of search spaces
yaml_source  YAML text as plain data with the line of every key
validation   plain data checked by models, each mistake with its key and line
overrides    settings of the command line
sections     small sections of a spec; names of sweeps and results
objective    the keys that define how trials are compared
stopping     the key `stop`
from_python  Python arguments as plain data
foreign      recognises files of other tools
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    WithJsonSchema,
)

from sweep.core.errors import BadConfig, Gathering, Place, Source, UnknownName, UsageError
from sweep.spec import sections
from sweep.spec.objective import (
    Aggregate,
    AggregateField,
    LimitText,
    Mode,
    Score,
    ScoreField,
    check_single,
)
from sweep.spec.overrides import Override, apply_overrides
from sweep.spec.sections import (
    MOST_TRIALS,
    Budget,
    CheckpointPolicy,
    Deterministic,
    ForbidField,
    InitialField,
    Limits,
    Machine,
    Plugin,
    Resources,
    Seeds,
    SeedsField,
    SpaceField,
    check_budget,
    check_name,
    check_result_path,
    read_plugin,
    source_of,
)
from sweep.spec.space import Space, initial
from sweep.spec.stopping import Stop, StopField
from sweep.spec.validation import validate
from trainables.core.settings import Settings
from trainables.errors import nearest, shorten

__all__ = [
    "Budget",
    "CheckpointPolicy",
    "Deterministic",
    "Limits",
    "Mode",
    "Override",
    "Plugin",
    "Resources",
    "Score",
    "Stop",
    "SweepSpec",
    "apply_overrides",
    "build",
    "canonical_json",
    "find",
    "from_json",
    "load",
    "parse",
    "survey",
    "text_of",
]

M = TypeVar("M", bound=BaseModel)

_TRAINABLE = re.compile(r"[A-Za-z_][\w-]*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _check_trainable(name: str) -> str:
    """Return the name or path of a trainable unchanged; ValueError if its form is not valid.

    Nothing is imported, so an unknown name passes.
    """
    if not _TRAINABLE.fullmatch(name):
        meant = name.replace(".py:", ":").removeprefix("./").replace("/", ".")
        written = f", such as {meant}" if _TRAINABLE.fullmatch(meant) else ""
        raise ValueError(f"a name such as ppo, or package.module:Class{written}")
    return name


def _check_trackers(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of trackers unchanged, unknown ones too; ValueError if one is repeated."""
    if len(set(names)) < len(names):
        raise ValueError("a list of different tracker names")
    return names


def _check_callbacks(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths of callbacks unchanged; nothing is imported.

    Raises ValueError if one has not the form ``package.module:Class`` or is repeated.
    """
    for name in names:
        if ":" not in name or not _TRAINABLE.fullmatch(name) or names.count(name) > 1:
            raise ValueError("a list of different package.module:Class paths")
    return names


def _text(pattern: str, longest: int | None = None) -> WithJsonSchema:
    """Return the annotation that gives a field the JSON Schema of a text; it checks nothing.

    The schema has the regular expression `pattern`, which fits the whole text, and the maximum
    number of characters, `longest`, None for no limit.
    """
    length = {} if longest is None else {"maxLength": longest}
    return WithJsonSchema({"type": "string", "pattern": f"^({pattern})$", **length})


ResultPath = Annotated[str, AfterValidator(check_result_path), _text(sections.RESULT_PATH.pattern)]
PluginField = Annotated[Plugin, BeforeValidator(read_plugin), PlainSerializer(Plugin.to_spec)]


#: Keys of the spec that are checked together.
_SEED_KEYS = ("seeds", "aggregate")


class SweepSpec(Settings):
    """All keys of a sweep's YAML file, checked: the trainable, its search space and the budget."""

    name: Annotated[
        str, AfterValidator(check_name), _text(sections.NAME.pattern, sections.LONGEST_NAME)
    ] = Field(
        description="Name of the sweep, its folder and its MLflow experiment. Names of sweeps in "
        "the same root folder must differ in more than case. Default: the name of the file, with "
        "a number appended if that name is taken."
    )
    trials: int = Field(
        ge=1,
        le=MOST_TRIALS,
        description="Number of trials, not counting the offspring that pbt and pb2 add.",
    )
    trainable: Annotated[str, AfterValidator(_check_trainable), _text(_TRAINABLE.pattern)] = Field(
        description="Trainer, class or function that does the training: a built-in name such as "
        "ppo, package.module:Name, or an installed package's entry point in the group "
        "trainables.algorithms."
    )
    metric: Annotated[ResultPath, BeforeValidator(check_single)] = Field(
        description="Name of the result by which trials are compared. Optional for an Optuna "
        "objective, whose result is called value."
    )
    mode: Mode = Field(
        description="Direction of the metric: max if more is better, min if less is better."
    )
    score: ScoreField = Field(
        Score(),
        description="Score of a trial, computed from the values of its metric: last (the last "
        "value), best, area (the mean of all values) or {mean_last: 10} (the mean of the last 10).",
    )
    objectives: dict[ResultPath, Mode] = Field(
        default_factory=dict,
        description="Further objectives: result → min or max. asha, hyperband and bohb then rank "
        "trials at rungs by Pareto fronts; other schedulers compare only the metric.",
    )
    constraints: dict[ResultPath, LimitText] = Field(
        default_factory=dict,
        description='Result → limit such as "<= 2"; a trial that violates a limit ranks behind '
        "all trials that violate none.",
    )
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of the trainable that are the same in all trials.",
    )
    forbid: ForbidField = Field(
        (),
        description="Combinations of settings that are never tried, given as conditions or "
        "expressions (docs/search-space.md).",
    )
    space: SpaceField = Field(
        description="Searched, derived and fixed settings, by dotted name. An Optuna objective's "
        "suggest_… calls add settings that are missing here."
    )
    initial: InitialField = Field(
        (),
        description="Settings of the first trials; the searcher chooses those that are left out.",
    )
    stop: StopField = Field(
        default_factory=Stop,
        description="Result → value. A trial ends when the result is at least the value. It ends "
        'at or below the value if that is written {"<=": value}, or if the result is a metric or '
        'objective to be minimized. {">=": value, consecutive: 3} ends it when three consecutive '
        "results meet the criterion. plateau: {patience: 20} ends a trial whose metric no longer "
        "improves; its other keys are min_delta, grace, metric and mode.",
    )
    budget: Budget = Field(
        Budget(), description="Limits that end the sweep before all its trials end."
    )
    searcher: PluginField = Field(
        Plugin(name="tpe"), description="Plugin that proposes the settings of new trials."
    )
    scheduler: PluginField = Field(
        Plugin(name="fifo"), description="Plugin that decides which trials run, and for how long."
    )
    seeds: SeedsField | None = Field(
        None,
        description="Number of seeds under which each setting is trained. With asha, hyperband "
        "and bohb it can also be auto, which tests the best trials at the top rung under further "
        "seeds, or a plan, rung → seeds, such as {15000: 3, 45000: 6}. Seeds that are added later "
        "are not ended by a target of the metric in stop. null: 1, except for trainers with asha: "
        "they use auto unless the scheduler's type is stopping, there is only one rung, or "
        "aggregate is worst or lower_bound.",
    )
    aggregate: AggregateField = Field(
        Aggregate(),
        description="Score of a trial with several seeds, computed from the seeds' scores: mean, "
        "iqm (interquartile mean), median, worst or {lower_bound: 0.9} (the mean's lower bound "
        "with 90 % confidence).",
    )
    checkpoint: CheckpointPolicy = Field(
        CheckpointPolicy(), description="Rules for writing and keeping checkpoints."
    )
    resources: Resources = Field(Resources(), description="Resources of one trial.")
    machine: Machine = Field(Machine(), description="Resources of the machine that trials share.")
    limits: Limits = Field(
        Limits(), description="Limits of time, memory and failures of trials and slices."
    )
    isolate: Literal["process", "slot"] | None = Field(
        None,
        description="process: each trial has its own process; slot: trials run one after another "
        "in a shared process, whose state (such as environment variables) is restored after each "
        "slice. null: process for functions and commands, slot for trainers and other classes.",
    )
    deterministic: Deterministic | None = Field(
        None,
        description="Let the scheduler decide only after whole batches of slices, so results "
        "depend neither on timing nor on the number of concurrent trials; null: it decides after "
        "each slice.",
    )
    trackers: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_check_trackers)] = (
        Field(
            ("mlflow", "optuna"),
            description="Destinations to which results are copied: mlflow, optuna, csv, json, "
            "tensorboard, wandb, or a tracker of your own (docs/trackers.md).",
        )
    )
    callbacks: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_check_callbacks)] = (
        Field(
            (),
            description="Classes of your own that are called on events "
            "(docs/trackers.md#callbacks).",
        )
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of all random streams of the sweep.")

    _source: Source = PrivateAttr(default_factory=Source)

    def model_post_init(self, context: Any, /) -> None:
        """Store the file's lines for messages, and check keys that depend on each other.

        A check is left out if a key that it reads has a mistake already. Raises BadConfig with all
        mistakes. `context` is pydantic's: a mapping with `source`, a Source, and `refused`, the
        keys with mistakes; None if there is neither.
        """
        source = self._source = source_of(context)
        gathering = Gathering(source, context["refused"] if context else ())
        gathering.run(lambda: self.space.check_against(self.config), "space", "config")
        gathering.run(self._check_metric, "metric", "objectives")
        gathering.run(lambda: initial.check(self.space, self.initial, source), "initial", "space")
        gathering.run(self._check_number, "initial", "trials")
        gathering.run(lambda: check_budget(self.budget, self.stop, source), "budget", "stop")
        gathering.run(
            lambda: sections.check_seeds(self.seed_plan, self.aggregate, source), *_SEED_KEYS
        )
        gathering.run(self._check_settled, "budget", "objectives", "constraints", "aggregate")
        gathering.check()

    def _check_settled(self) -> None:
        """Raise BadConfig if `budget.settled` is set and more than the expected score ranks trials.

        That is so with `objectives`, with `constraints`, and with an aggregate that depends on the
        number of seeds: worst or lower_bound.
        """
        others = {"objectives": self.objectives, "constraints": self.constraints}
        unsuitable = [key for key, value in others.items() if value]
        unsuitable += [] if self.aggregate.is_independent_of_count else ["aggregate"]
        if self.budget.settled is not None and unsuitable:
            problem = (
                f"cannot be used with {unsuitable[0]}, because trials are then not ranked by "
                "the expected score alone"
            )
            path, share = ("budget", "settled"), self.budget.settled
            raise self._source.refuse(path, share, hint="remove it", problem=problem)

    def _check_metric(self) -> None:
        """Raise BadConfig if the metric is also a further objective."""
        if self.metric in self.objectives:
            raise self._source.refuse(
                ("objectives", self.metric),
                self.metric,
                hint="remove it from objectives",
                problem="is the metric already",
            )

    def _check_number(self) -> None:
        """Raise BadConfig if `initial` has more points than there are trials."""
        if (given := len(self.initial)) > self.trials:
            hint = f"raise trials to {given}, or remove some entries"
            problem = f"it has {given} entries, which is more than trials, {self.trials}"
            found = f"a list of {given}"
            raise self._source.refuse(("initial",), found, hint=hint, problem=problem)

    @property
    def first_seeds(self) -> int:
        """Number of seeds with which a new trial starts; 1 with a plan of seeds or ``auto``."""
        return self.seeds if isinstance(self.seeds, int) else 1

    @property
    def has_seed_plan(self) -> bool:
        """True if `seeds` is a plan or ``auto``: trials that reach high rungs get more seeds."""
        return not isinstance(self.seed_plan, int)

    @property
    def seed_plan(self) -> Seeds:
        """Number of seeds of each trial, ``auto``, or a plan; 1 if `seeds` is None.

        A plan is a tuple of pairs (rung, number of seeds from there on), ascending.
        """
        return 1 if self.seeds is None else self.seeds

    @property
    def source(self) -> Source:
        """File and lines of the spec's keys, for errors that are found later."""
        return self._source


# ---- reading and writing --------------------------------------------------------------------


#: Suffixes of YAML files.
_SUFFIXES = (".yaml", ".yml")


#: Suffixes of files that users give by mistake instead of a spec.
_PYTHON = (".py", ".ipynb")


def find(space: str) -> Path:
    """Return the YAML file that a user names: a path, or the bare name of a shipped search space.

    An existing file comes before a shipped space of the same name, and need not end in ``.yaml``.
    Raises UsageError for a folder, a file that ends in ``.py`` or ``.ipynb``, and if there is no
    such file; the message names similar ones.
    """
    if _is_file(Path(space)):
        if (path := Path(space)).suffix in _PYTHON:
            raise UsageError(
                f"{shorten(space)} is not a YAML file; `sweep init` writes one whose trainable: "
                f"names a function as {path.stem}:NAME; from Python, sweep.run(NAME, ...) "
                f"needs no file"
            )
        return Path(space)
    files = shipped()
    if space in files:
        return files[space]
    path = Path(space)
    if space and _is_folder(path):
        siblings = sorted(str(other) for other in path.iterdir() if other.suffix in _SUFFIXES)
        found = f", such as {' or '.join(siblings[:3])}" if siblings else ""
        raise UsageError(f"{shorten(space)} is a folder; name a YAML file{found}")
    if len(path.parts) < 2 and path.suffix not in _SUFFIXES:
        raise UnknownName("search space", space, list(files), "a path to a YAML file works too")
    try:
        siblings = [str(other) for other in path.parent.iterdir() if other.suffix in _SUFFIXES]
    except (OSError, ValueError):  # the folder does not exist or its name is not valid
        siblings = []
    raise UsageError(f"{shorten(space)}: there is no such file{nearest(space, siblings)}")


def _is_folder(path: Path) -> bool:
    """Return whether `path` is a folder; false if it is too long or otherwise invalid."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # the name is not valid
        return False


def shipped() -> dict[str, Path]:
    """Return the search spaces that are shipped with sweep: name → file, sorted by name."""
    entries = sorted(resources.files("search_spaces").iterdir(), key=lambda entry: entry.name)
    return {Path(e.name).stem: Path(str(e)) for e in entries if e.name.endswith(".yaml")}


def load(path: Path, overrides: Sequence[str | Override] = ()) -> SweepSpec:
    """Read a spec from a YAML file, and apply `overrides`.

    An override is an `Override` or the text after ``--set``, such as ``config.lr=0.1``. Raises
    BadConfig if the file cannot be read or has mistakes, with all of them; UsageError if it is a
    file of another tool.
    """
    return parse(text_of(path), str(path), overrides)


def parse(text: str, file: str, overrides: Sequence[str | Override] = ()) -> SweepSpec:
    """Read a spec from YAML text, and apply `overrides`; `file` is the text's name in messages.

    An override is an `Override` or the text after ``--set``. Raises BadConfig with all mistakes;
    UsageError if it is the text of another tool's file and `file` is not empty.
    """
    spec, found = survey(text, file, overrides)
    found.check()
    return spec


#: Values that replace required keys with mistakes while the others are checked.
_PLACEHOLDERS: Mapping[str, Any] = {
    "name": "unnamed",
    "trials": 1,
    "trainable": "unnamed",
    "metric": "metric",
    "mode": "min",
    "space": {},
}


def survey(
    text: str,
    file: str,
    overrides: Sequence[str | Override] = (),
    name: str = "",
    remark: str = "",
) -> tuple[SweepSpec, Gathering]:
    """Read a spec from YAML text; return it with its mistakes, which `Gathering.check` raises.

    Top-level keys with a mistake have their defaults in the returned spec, or placeholders if they
    have none.

    Args:
        text: YAML text.
        file: path of the text, for messages.
        overrides: settings of the command line, as in `load`.
        name: name of the sweep if the text has none.
        remark: remark about that name for the user.

    Raises:
        UsageError: `text` is that of another tool's file, and `file` is not empty.
        BadConfig: `text` is not YAML, an override does not fit, or mistakes remain when the keys
            that have them are left out.
    """
    from sweep.spec import foreign, yaml_source  # not at the top: workers read no YAML

    foreign.refuse(text, file)
    written, source, gathering = yaml_source.survey(text, file)
    raw, source = apply_overrides(written, source, overrides)
    if name and "name" not in raw:
        raw["name"] = name
        source = replace(source, remarks=(*source.remarks, *filter(None, [remark])))
    gathering.source = source
    known = {key: value for key, value in raw.items() if key in SweepSpec.model_fields}
    with gathering.collect():
        spec = validate(SweepSpec, raw, source)
        if not gathering.refused:
            return spec, gathering
    while True:
        refused = gathering.refused
        left = {key: value for key, value in known.items() if key not in refused}
        if "space" in refused:  # which depends on the space
            left.pop("forbid", None)
        with gathering.collect():
            return validate(SweepSpec, {**_PLACEHOLDERS, **left}, source, refused), gathering
        if gathering.refused == refused:  # nothing more can be removed
            gathering.check()


def canonical_json(spec: SweepSpec) -> str:
    """Return the spec as compact JSON with all keys, those at their defaults too.

    `from_json` reads it. Mappings such as ``config`` keep their order, so equal specs may have
    different texts.
    """
    return json.dumps(spec.model_dump(), separators=(",", ":"), allow_nan=False)


def from_json(text: str, overrides: Sequence[str | Override] = ()) -> SweepSpec:
    """Read a spec from the text of `canonical_json`, and apply `overrides` as in `load`.

    Raises BadConfig, without lines, if an override or the changed spec is not valid; ValueError if
    `text` is not JSON.
    """
    return validate(SweepSpec, *apply_overrides(json.loads(text), Source(), overrides))


def build(model: type[M], plugin: Plugin, key: str, source: Source) -> M:
    """Return an instance of `model`, the settings of a plugin, made of the plugin's options.

    `key` is the plugin's key in the spec, such as ``searcher``. Raises BadConfig, with the lines of
    the options, if the model refuses some.
    """
    return validate(model, plugin.options, source.sub_source(key))


def _is_file(path: Path) -> bool:
    """Return whether `path` is a file; false if it is invalid or its folder is not readable."""
    try:
        return path.is_file()
    except OSError:  # the name is too long, or the folder not readable
        return False


def text_of(path: Path) -> str:
    """Return the text of a file in UTF-8, without a byte order mark at its beginning.

    Raises BadConfig if it is missing, unreadable, not UTF-8, or larger than
    `yaml_source.LARGEST_FILE` bytes.
    """
    from sweep.spec import yaml_source

    allowed = f"a readable file in UTF-8 of at most {yaml_source.LARGEST_FILE} bytes"
    place = Place(str(path))
    if not _is_file(path):
        missing = "is a folder; name a YAML file" if _is_folder(path) else "there is no such file"
        raise BadConfig("the spec", str(path), place=place, problem=missing)
    try:
        with path.open("rb") as stream:
            content = stream.read(yaml_source.LARGEST_FILE + 1)
        if len(content) > yaml_source.LARGEST_FILE:
            large = "the file is too large"
            raise BadConfig("the spec", str(path), allowed, place=place, problem=large)
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        problem = f"the file cannot be read: {reason}"
        raise BadConfig("the spec", str(path), allowed, place=place, problem=problem) from error


# -------------------------------------------------------------------------------------------------
# The space in a YAML file: the key ``space`` of a whole spec, or a file that is only a space.


def read(path: Path, spec: SweepSpec) -> Space:
    """Read the search space in a YAML file: its key ``space``, or the whole file.

    The key is taken if the file has ``trainable`` too, or no other key. ``forbid`` is always that
    of `spec`. Raises BadConfig if the file cannot be read, BadSpace if the space has mistakes.
    """
    from sweep.spec import yaml_source

    raw, source = yaml_source.read(text_of(path), str(path))
    inner = raw.get("space")
    if isinstance(inner, Mapping) and ("trainable" in raw or len(raw) == 1):
        return Space.parse(inner, source, spec.forbid, replaces=True)
    marks = {("space", *path): at for path, at in source.marks.items()}
    return Space.parse(raw, Source(source.file, marks), spec.forbid, replaces=True)
