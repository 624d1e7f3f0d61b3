import copy
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from sweep.core.errors import (
    BadConfig,
    BadSpace,
    IllegalMove,
    LedgerError,
    StorageError,
    SweepError,
    SweepLocked,
    TrialError,
    UnknownName,
    UsageError,
    WorkerLost,
)
from sweep.spec import Override, build, load, parse
from sweep.spec.yaml_source import DEEPEST, LARGEST_FILE, MOST_NODES, read

SPEC = """\
name: tiny
trials: 4
trainable: ppo
metric: a/b
mode: max
score: last
config:
  env: CartPole-v1
space:
  lr: {loguniform: [1e-5, 1e-2]}
  filter: {choice: [none, mean]}
  clip: {uniform: [5, 20], when: {filter: mean}}
  half: {value: "clip / 2"}
stop: {timesteps_total: 1000}
searcher: {name: tpe}
scheduler: {name: asha, grace_period: 3}
checkpoint: {every: 1}
limits: {slice_s: 30}
seed: 0
"""


def refused(text: str, *overrides: str | Override) -> BadConfig:
    with pytest.raises(BadConfig) as caught:
        parse(text, "spec.yaml", overrides)
    error = caught.value
    assert error.exit_code == 2
    assert str(error).isprintable()
    assert f"{error.key}: " in str(error)
    assert error.allowed in str(error)
    return error


def test_the_spec_that_the_mistakes_are_made_in_is_good() -> None:
    parse(SPEC, "spec.yaml")


@pytest.mark.parametrize(
    ("change", "line", "place", "value", "allowed", "hint"),
    [
        (("trials: 4", "trails: 4"), 2, "trails", "trails", "name, trials,", "mean 'trials'?"),
        (
            ("seed: 0", "num_samples: 3"),
            19,
            "num_samples",
            ...,
            "trials",
            "sweep calls it 'trials'",
        ),
        (("seed: 0", "parameters: {}"), 19, "parameters", ..., "space", "sweep calls it 'space'"),
        (("every: 1", "evry: 1"), 17, "checkpoint.evry", "evry", "keep_last", "mean 'every'?"),
        (
            ("slice_s: 30", "slize_s: 3"),
            18,
            "limits.slize_s",
            "slize_s",
            "slice_s",
            "mean 'slice_s'?",
        ),
        (
            ("metric: a/b\n", ""),
            1,
            "metric",
            None,
            "is missing",
            "add this key: name of the result by which trials are compared",
        ),
        (("trials: 4", "trials: -1"), 2, "trials", -1, "greater than or equal to 1", ""),
        (("trials: 4", "trials: 0"), 2, "trials", 0, "greater than or equal to 1", ""),
        (("trials: 4", "trials: 1e12"), 2, "trials", 1e12, "a whole number", ""),
        (
            ("trials: 4", "trials: 1000001"),
            2,
            "trials",
            1000001,
            "less than or equal to 1000000",
            "",
        ),
        (("trials: 4", "trials: '10'"), 2, "trials", "10", "a whole number", "without quotes"),
        (("trials: 4", "trials: true"), 2, "trials", True, "a whole number", ""),
        (("trials: 4", "trials:"), 2, "trials", None, "a whole number", ""),
        (("name: tiny", "name: 2024"), 1, "name", 2024, "text", "quoted: '2024'"),
        (("trainable: ppo", "trainable: a.b"), 3, "trainable", "a.b", "package.module:Class", ""),
        (
            ("trainable: ppo", "trainable: 'x:y()'"),
            3,
            "trainable",
            "x:y()",
            "a name such as ppo",
            "",
        ),
        (("metric: a/b", "metric: /a"), 4, "metric", "/a", "a path into the results", ""),
        (("metric: a/b", "metric: ''"), 4, "metric", "", "a path into the results", ""),
        (("mode: max", "mode: mix"), 5, "mode", "mix", "'min' or 'max'", "did you mean"),
        (("score: last", "score: lasst"), 6, "score", "lasst", "{mean_last: k}", ""),
        (
            ("score: last", "score: {mean_last: 0}"),
            6,
            "score",
            {"mean_last": 0},
            "{mean_last: k}",
            "",
        ),
        (("score: last", "score: {mean_last: true}"), 6, "score", ..., "{mean_last: k}", ""),
        (("config:\n  env", "config: 3\n#"), 7, "config", 3, "a mapping", ""),
        (
            ("env: CartPole-v1", "lr: 1"),
            8,
            "config.lr",
            1,
            "lr is set in space too, at spec.yaml:10",
            "remove",
        ),
        (
            ("[1e-5, 1e-2]", "[1e-2, 1e-5]"),
            10,
            "space.lr.loguniform",
            [1e-2, 1e-5],
            "0.01 is more than 1e-05",
            "write",
        ),
        (("[1e-5, 1e-2]", "[0, 1e-5]"), 10, "space.lr.loguniform[0]", 0, "above 0", ""),
        (
            ("[1e-5, 1e-2]", "[.nan, 1]"),
            10,
            "space.lr.loguniform[0]",
            ".nan",
            "a finite number",
            "",
        ),
        (
            ("[1e-5, 1e-2]", "[1, -.INF]"),
            10,
            "space.lr.loguniform[1]",
            "-.INF",
            "a finite number",
            "",
        ),
        (("[1e-5, 1e-2]", "[1, 1e999]"), 10, "space.lr.loguniform[1]", "1e999", "finite", ""),
        (("loguniform", "logunifrm"), 10, "space.lr.logunifrm", ..., "uniform,", "'loguniform'?"),
        (("[none, mean]", "[]"), 11, "space.filter.choice", ..., "1 to 10000", ""),
        (("{filter: mean}", "{filtr: mean}"), 12, "space.clip.when.filtr", ..., "lr,", "'filter'?"),
        (("clip / 2", "clip / 0"), 13, "space.half.value", "clip / 0", "finite", ""),
        (
            ("[none, mean]", "[none, mean]\n    }\n  filter2: {choice: [1, 1]"),
            13,
            ...,
            1,
            "1 is listed twice",
            "write each value once",
        ),
        (("stop: {t", "stop: 3 #"), 14, "stop", 3, "a mapping", ""),
        (
            ("total: 1000", "total: '1'"),
            14,
            "stop.timesteps_total",
            "1",
            "number",
            "without quotes",
        ),
        (("total: 1000", "total: true"), 14, "stop.timesteps_total", True, "number", ""),
        (
            ("timesteps_total: 1000", "a//b: 1"),
            14,
            "stop.a//b",
            "a//b",
            "a path into the results",
            "",
        ),
        (("{name: tpe}", "{nam: tpe}"), 15, "searcher", {"nam": "tpe"}, "a name, or {name: …", ""),
        (("{name: tpe}", "3"), 15, "searcher", 3, "a name, or {name: …", ""),
        (("{name: tpe}", "''"), 15, "searcher", "", "at least 1 character", ""),
        (("every: 1", "every: 0"), 17, "checkpoint.every", 0, "greater than or equal to 1", ""),
        (
            ("every: 1", "keep_last: 0"),
            17,
            "checkpoint.keep_last",
            0,
            "greater than or equal to 1",
            "",
        ),
        (("every: 1", "every: 1.0"), 17, "checkpoint.every", 1.0, "a whole number", ""),
        (("{slice_s: 30}", "3"), 18, "limits", 3, "a mapping", ""),
        (("slice_s: 30", "slice_s: 0"), 18, "limits.slice_s", 0, "greater than 0", ""),
        (("slice_s: 30", "slice_s: .inf"), 18, "limits.slice_s", ".inf", "a finite number", ""),
        (("seed: 0", "seed: -1"), 19, "seed", -1, "greater than or equal to 0", ""),
        (("seed: 0", f"seed: {2**63}"), 19, "seed", str(2**63), "64 bits", ""),
        (("seed: 0", "deterministic: true"), 19, "deterministic", True, "a mapping", ""),
        (
            ("seed: 0", "deterministic: {batch: 0}"),
            19,
            "deterministic.batch",
            0,
            "greater than",
            "",
        ),
        (
            ("seed: 0", "deterministic: {}"),
            19,
            "deterministic.batch",
            None,
            "is missing",
            "slices that must",
        ),
        (("seed: 0", "seeds: 0"), 19, "seeds", 0, "1 to 1000, auto, or", ""),
        (("seed: 0", "seeds: 1001"), 19, "seeds", 1001, "1 to 1000, auto, or", ""),
        (("seed: 0", "seeds: three"), 19, "seeds", "three", "1 to 1000, auto, or", ""),
        (("seed: 0", "seeds: {5: 1}"), 19, "seeds", ..., "with more seeds at each later rung", ""),
        (("seed: 0", "aggregate: min"), 19, "aggregate", "min", "mean, iqm, median, worst", ""),
        (
            ("seed: 0", "aggregate: lower_bound"),
            19,
            "aggregate",
            "lower_bound",
            "lower_bound: lev",
            "",
        ),
        (("seed: 0", "aggregate: {lower_bound: 2}"), 19, "aggregate", ..., "0.5 to below 1", ""),
        (("seed: 0", "aggregate: {lower_bound: 0.9}"), 19, "aggregate", ..., "mean", "seeds: 3"),
        (
            ("seed: 0", "seeds: auto\naggregate: worst"),
            20,
            "aggregate",
            "worst",
            "mean, iqm or median",
            "",
        ),
        (
            ("seed: 0", "resources: {cpu: 0}"),
            19,
            "resources.cpu",
            0,
            "greater than or equal to 1",
            "",
        ),
    ],
)
def test_a_mistake_is_answered_with_its_place_value_and_remedy(
    change: tuple[str, str], line: int, place: Any, value: Any, allowed: str, hint: str
) -> None:
    assert change[0] in SPEC
    error = refused(SPEC.replace(*change, 1))
    assert place is ... or error.key == place
    assert (error.file, error.line) == ("spec.yaml", line)
    assert str(error).startswith(f"spec.yaml:{line}: {error.key}: ")
    assert value is ... or error.value == value
    assert allowed in f"{error.problem} {error.allowed}"
    assert hint in error.hint
    assert isinstance(error, BadSpace) == error.key.startswith("space")


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../../etc", "/abs", "a/b", "a" * 101, "a..b", "a.", "con", "lpt1.txt"),
        *(
            "-rf",
            "_a",
            "Con",
            "LPT1.txt",
            "a b",
            "a\\b",
            "😀",
            "é",
            "e\u0301",
            "\u202etini",
            "%s{0}",
        ),
        *("'; drop table", "$(id)", "a?b", "a#b", "a\tb", "~"),
        *("mlflow.db", "mlflow.db-wal", "mlflow.db.lock", "mlflow.db.new", "mlartifacts"),
        *("MLflow.db", "mlArtifacts"),
    ],
)
def test_a_name_that_is_no_slug_is_refused(name: str) -> None:
    error = refused(SPEC, Override("name", name, "--name …"))
    assert error.key == "name"
    assert error.value == name
    assert "letters a-z or A-Z" in error.allowed
    assert error.file == "--name …"


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "0",
        "Tiny",
        "PPO-CartPole",
        "a.b_c-d",
        "console",
        "ppo-2024.01.01",
        "mlflow.dbs",
        "a" * 100,
    ],
)
def test_a_slug_is_a_name(name: str) -> None:
    assert parse(SPEC, "spec.yaml", [Override("name", name, "--name")]).name == name


@pytest.mark.parametrize(
    ("text", "line", "place", "value", "allowed", "hint"),
    [
        ("", 1, "the spec", None, "a mapping", ""),
        ("# nothing\n", 1, "the spec", None, "a mapping", ""),
        ("- 1\n- 2\n", 1, "the spec", [1, 2], "a mapping", ""),
        ("just text", 1, "the spec", "just text", "a mapping", ""),
        ("a: 1\nb: 2\na: 3", 3, "a", "a", "written twice", "is also at x.yaml:1"),
        ("a:\n  b: 1\n  b: 1", 3, "a.b", "b", "written twice", "x.yaml:2"),
        ("a: 1\nb: {c: 1, c: 1}", 2, "b.c", "c", "written twice", "x.yaml:2"),
        ("a: 1\nb: &x 1", 2, "b", "&x", "a YAML anchor", "remove it"),
        ("a: 1\nb: *x", 2, "b", "*x", "a YAML alias", "write the value out"),
        ("a: 1\n*x : 1", 2, "the spec", "*x", "a YAML alias", ""),
        ("a: 1\n&x b: 1", 2, "the spec", "&x", "a YAML anchor", ""),
        ("a: !!python/object/apply:os.system [ls]", 1, "a", ..., "a YAML tag", "quote it"),
        ("a: !!int 3", 1, "a", ..., "a YAML tag", ""),
        ("a: !x 3", 1, "a", "!x", "a YAML tag", ""),
        ("a: ! 3", 1, "a", "!", "a YAML tag", ""),
        ("!x\na: 3", 1, "the spec", "!x", "a YAML tag", ""),
        ("a: 1\n<<: {b: 2}", 2, "the spec", "<<", "a YAML merge key", "write the keys out"),
        ("a: 1\n---\nb: 2", 2, "the spec", "---", "one document", "split the file"),
        ("a: 1\n...\nb: 2", 3, "the spec", "---", "one document", "split the file"),
        ("%YAML 1.1\n---\na: on", 1, "the spec", ..., "only of 1.2", "remove the line"),
        ("a: 1\n2: 3", 2, "the spec", 2, "the key 2 is not text", "quote it: '2'"),
        ("a: 1\ntrue: 3", 2, "the spec", True, "is not text", "quote it: 'true'"),
        ("a: 1\n? [1]\n: 3", 2, "the spec", ..., "must be text", ""),
        ("a: 1\nb: 2024-01-31", 2, "b", "2024-01-31", "is a date", "quote it: '2024-01-31'"),
        ("a: 1\nb: 2024-01-31T10:00:00Z", 2, "b", ..., "is a date", "quote it"),
        ("a: 1\nb: 1_000", 2, "b", "1_000", "a number with _", "write 1000, or quote it"),
        ("a: [1, .nan]", 1, "a[1]", ".nan", "a finite number", ""),
        ("a: 1e400", 1, "a", "1e400", "a finite number", ""),
        (f"a: {2**63}", 1, "a", str(2**63), "64 bits", "quote it"),
        (f"a: {'9' * 5000}", 1, "a", "9" * 5000, "64 bits", "quote it"),
        (f"a: 0x{'f' * 20}", 1, "a", f"0x{'f' * 20}", "64 bits", "quote it"),
        ("a: 1\nb: \x07", 2, "the spec", "\x07", "has a control character", "remove it"),
        ("a: 1\nb: \x85x", 2, "the spec", "\x85", "has a control character", "remove it"),
        ("a: 1\nb: '\ud800'", 2, "the spec", "\ud800", "has a control character", "remove it"),
        ('a: 1\nb: "\\e[31m"', 2, "b", "\x1b[31m", "has a control character", "remove it"),
        ('a: 1\nb: "\\ud800"', 2, "b", "\ud800", "has a control character", "remove it"),
        ("a: 1\n\tb: 2", 2, "the spec", ..., "YAML 1.2", "not tabs"),
        ("a: 1\nb: c: d", 2, "the spec", "b: c: d", "YAML 1.2", "quote text that contains ': '"),
        ("a: 1\n b: 2", 2, "the spec", "b: 2", "YAML 1.2", "indent keys of one mapping equally"),
        ("a:\n  b: 1\n c: 2", 3, "the spec", "c: 2", "YAML 1.2", "indent keys of one mapping,"),
        ("a: [1", 1, "the spec", "a: [1", "YAML 1.2", ""),
        ("a: 'x", 1, "the spec", "a: 'x", "YAML 1.2", ""),
        ("a: @x", 1, "the spec", "a: @x", "YAML 1.2", ""),
        ('a: "\\U11000000"', 1, "the spec", ..., "cannot be read", ""),
        (f"a: {'[' * 3000}{']' * 3000}", 1, ..., ..., "at most 32 are allowed", ""),
        ("a: " + "{b: " * 40 + "1" + "}" * 40, 1, ..., ..., "at most 32 are allowed", ""),
        (f"a: [{'1,' * (MOST_NODES + 9)}]", 1, ..., ..., "keys and values", ""),
        ("a: 1\n" * (LARGEST_FILE // 5 + 1), 1, "the spec", ..., "at most 500000", ""),
    ],
)
def test_yaml_that_is_no_plain_data_is_refused(
    text: str, line: int, place: Any, value: Any, allowed: str, hint: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        read(text, "x.yaml")
    error = caught.value
    assert (error.file, error.line) == ("x.yaml", line)
    assert place is ... or error.key == place
    assert value is ... or error.value == value
    assert allowed in f"{error.problem} {error.allowed}"
    assert hint in error.hint
    assert str(error).isprintable()
    assert len(str(error)) < 400
    assert str(error).startswith(f"x.yaml:{line}: ")


@pytest.mark.parametrize(
    ("override", "place", "value", "allowed"),
    [
        ("trials=0", "trials", 0, "greater than or equal to 1"),
        ("trials", "--set trials", "trials", "key=value"),
        ("=3", "--set =3", "=3", "key=value"),
        ("config..lr=3", "--set config..lr=3", "config..lr=3", "key=value"),
        ("trials.x=3", "trials", 4, "a mapping"),
        ("modell.hidden=3", "modell", "modell", "one of name"),
        ("config.lr=0.1", "config.lr", 0.1, "lr is set in space too, at spec.yaml:10"),
        ("space.lr.loguniform=[2, 1]", "space.lr.loguniform", [2, 1], "2 is more than 1"),
        ("space.lr=.nan", "space.lr", ".nan", "a finite number"),
        ("config.x=[1", "config.x", "[1", "YAML 1.2"),
        ("config.x=&a 1", "config.x", "&a", "a YAML anchor"),
        ("scheduler.name=3", "scheduler", {"name": 3}, "a name, or"),
    ],
)
def test_a_wrong_override_is_answered_with_what_was_typed(
    override: str, place: str, value: Any, allowed: str
) -> None:
    error = refused(SPEC, override)
    assert (error.key, error.value) == (place, value)
    assert allowed in f"{error.problem} {error.allowed}"
    if override != "scheduler.name=3":
        origin = f"--set {override}: "
        assert str(error).startswith(origin)
        assert str(error).removeprefix(origin).startswith(place.removeprefix(origin[:-2]))


@pytest.mark.parametrize("option", ["--set", "--budget"])
@pytest.mark.parametrize("start", ["config", "space", "budget"])
def test_a_path_of_more_names_than_anybody_nests_is_refused_at_once(
    start: str, option: str
) -> None:
    deep = ".".join([start, *["x"] * (DEEPEST - 1)])
    assert Override.parse(f"{deep}=1", option).path == deep
    for names in (1, 50_000, 500_000):
        with pytest.raises(BadConfig) as caught:
            Override.parse(deep + ".x" * names + "=1", option)
        found = f"the path has {DEEPEST + names} names; expected at most {DEEPEST}"
        assert found in str(caught.value)
        assert len(str(caught.value)) < 400


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    grace_period: int = Field(1, ge=1)
    rungs: tuple[int, ...] = Field((), strict=False)


@pytest.mark.parametrize(
    ("options", "place", "value", "allowed", "hint"),
    [
        ("grace_perod: 3", "grace_perod", "grace_perod", "grace_period", "mean 'grace_period'?"),
        ("grace_period: 0", "grace_period", 0, "greater than or equal to 1", ""),
        ("grace_period: 1.5", "grace_period", 1.5, "a whole number", ""),
        ("rungs: [1, x]", "rungs[1]", "x", "a whole number", ""),
    ],
)
def test_a_wrong_option_of_a_plugin_is_answered_with_its_line(
    options: str, place: str, value: Any, allowed: str, hint: str
) -> None:
    spec = parse(SPEC.replace("grace_period: 3", options), "spec.yaml")
    with pytest.raises(BadConfig) as caught:
        build(Options, spec.scheduler, "scheduler", spec.source)
    error = caught.value
    assert (error.key, error.value) == (f"scheduler.{place}", value)
    assert (error.file, error.line) == ("spec.yaml", 16)
    assert allowed in f"{error.problem} {error.allowed}"
    assert hint in error.hint


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"#" * (LARGEST_FILE + 1))
    (tmp_path / "latin.yaml").write_bytes("name: é".encode("latin-1"))
    (tmp_path / "folder.yaml").mkdir()
    for name in ("large", "latin", "folder", "missing"):
        file = tmp_path / f"{name}.yaml"
        found = {"folder": "is a folder; name a YAML file", "missing": "there is no such file"}
        said = found.get(name, "a readable file in")
        with pytest.raises(BadConfig, match=said) as caught:
            load(file)
        assert caught.value.file == str(file)


# ---- the errors themselves ------------------------------------------------------------------

ERRORS: list[tuple[SweepError, type[SweepError], int, dict[str, Any], str]] = [
    (UnknownName("searcher", "tpee", ["random", "tpe"]), UsageError, 2, {"name": "tpee"}, "'tpe'?"),
    (UnknownName("sweep", "a", []), UsageError, 2, {"known": ()}, "no sweep is known"),
    (BadConfig("a.b", 1, "2", "do it"), UsageError, 2, {"line": None}, "a.b: 1 is not allowed"),
    (BadSpace("space.b", 1, "2"), BadConfig, 2, {"key": "space.b"}, "expected 2"),
    (WorkerLost(-9, 123), TrialError, 5, {"worker_exit": -9, "pid": 123}, "exit code -9"),
    (
        IllegalMove(3, "FAILED", "RUNNING"),
        LedgerError,
        5,
        {"before": "FAILED"},
        "trial 3: the status cannot change from FAILED",
    ),
    (
        SweepLocked("tiny", "host pid 3"),
        LedgerError,
        3,
        {"holder": "host pid 3"},
        "is in use",
    ),
    (StorageError("disk full\nno"), SweepError, 4, {}, "disk full\\nno"),
]


@pytest.mark.parametrize(("error", "parent", "code", "fields", "text"), ERRORS)
def test_an_error_has_its_fields_its_exit_code_and_one_line(
    error: SweepError, parent: type, code: int, fields: dict[str, Any], text: str
) -> None:
    assert isinstance(error, parent)
    assert error.exit_code == code
    assert {name: getattr(error, name) for name in fields} == fields
    assert text in str(error)
    assert str(error).isprintable()


@pytest.mark.parametrize("error", [row[0] for row in ERRORS])
def test_an_error_crosses_to_another_process_whole(error: SweepError) -> None:
    other = copy.copy(error)  # by the same protocol as pickling
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)


def test_text_that_could_fool_a_terminal_is_escaped() -> None:
    error = BadConfig("name", "\x1b[2J\u202e", "a slug")
    assert str(error).isprintable()
    assert "\\x1b" in str(error)
