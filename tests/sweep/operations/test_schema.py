"""`sweep schema`: what it refuses cannot work, and it refuses no spec that works."""

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sweep import schedulers, searchers
from sweep import spec as specs
from sweep.cli.main import main
from sweep.cli.train import TEMPLATES
from sweep.core.errors import UsageError
from sweep.core.plugins import find_trainable
from sweep.operations import schema
from sweep.spec import yaml_source
from tests.support.installed import install
from trainables.core import settings
from trainables.errors import ConfigError

HERE = Path(__file__).parents[3]
PAGES = [HERE / "README.md", HERE / "CONTRIBUTING.md", *sorted((HERE / "docs").rglob("*.md"))]
SPACES = sorted((HERE / "search_spaces").glob("*.yaml"))
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)

GOOD = """\
name: good
trials: 8
trainable: ppo
metric: evaluation/episode_reward_mean
mode: max
config: {env: CartPole-v1, evaluation_interval: 5, model: {hidden: [64, 64]}}
space:
  lr: {loguniform: [1e-5, 1e-2]}
  num_sgd_iter: {randint: [4, 16], step: 4}
  gamma: {choice: [0.95, 0.99], weights: [1, 3]}
  observation_filter: {choice: [NoFilter, MeanStdFilter]}
  observation_filter_clip: {uniform: [5, 20], when: {observation_filter: MeanStdFilter}}
  _gap: {lognormal: [-3, 1], bounds: [0.01, 0.3]}
  lambda_: {value: "1 - _gap"}
  clip_param: {distribution: q_uniform, min: 0.1, max: 0.4, q: 0.1}
  rollout_fragment_length: {grid: [32, 64]}
  entropy_coeff: 0.01
forbid: ["num_sgd_iter > 8 and lr > 0.005", {gamma: 0.95, lr: {">": 0.005}}]
initial: [{lr: 3e-4, gamma: 0.99}]
score: {mean_last: 3}
seeds: {15000: 3, 45000: 6}
stop: {timesteps_total: 50000, plateau: {patience: 20}, learner/entropy: {"<=": 0.01}}
budget: {time_s: 7200, target: 495}
searcher: {name: tpe, multivariate: true}
scheduler: {name: asha, time_attr: timesteps_total, grace_period: 5000, reduction_factor: 3}
checkpoint: {max_disk: 20GB}
limits: {trial_memory: 4GB, fail_fast: true}
constraints: {time_this_iter_s: "<= 2"}
"""


@cache
def validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(schema.schema())


def read(text: str) -> dict[str, Any]:
    """The plain data of a spec as an editor sees it: all keys are text."""
    raw, _ = yaml_source.read(text, "a spec")
    plain: dict[str, Any] = json.loads(json.dumps(raw))
    return plain


def mistakes(raw: dict[str, Any]) -> list[str]:
    found = [error for outer in validator().iter_errors(raw) for error in _all(outer)]
    return [f"{list(error.absolute_path)}: {error.message}" for error in found]


def _all(error: jsonschema.ValidationError) -> list[jsonschema.ValidationError]:
    return [error, *(inner for outer in error.context or () for inner in _all(outer))]


def test_it_is_a_schema_of_draft_7_that_refers_to_nothing_outside() -> None:
    whole = schema.schema()
    jsonschema.Draft7Validator.check_schema(whole)
    found = set(re.findall(r'"\$ref":"([^"]*)"', schema.rendered(whole)))
    assert len(found) > 100
    inside = {f"#/definitions/{name}" for name in whole["definitions"]}
    assert found == inside, "each definition is used, and each reference leads to one"


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_every_bundled_space_is_valid_and_names_the_schema_beside_it(path: Path) -> None:
    text = path.read_text()
    assert mistakes(read(text)) == []
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named is not None
    assert json.loads((path.parent / named[1]).read_text())["title"] == "A sweep"


def test_every_documented_spec_is_valid() -> None:
    found = [(page, body) for page in PAGES for body in BLOCK.findall(page.read_text())]
    assert len(found) > 10
    for page, body in found:
        assert mistakes(read(body)) == [], page


@pytest.mark.parametrize("kind", TEMPLATES)
def test_what_init_writes_is_valid_and_names_the_schema_beside_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine", "--kind", kind]) == 0
    text = (tmp_path / "mine" / "space.yaml").read_text()
    assert text.splitlines()[0] == "# yaml-language-server: $schema=sweep.schema.json"
    assert mistakes(read(text)) == []
    beside = json.loads((tmp_path / "mine" / "sweep.schema.json").read_text())
    assert beside == json.loads(json.dumps(schema.schema()))


def test_what_init_writes_for_another_tools_file_names_the_schema_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wandb = "method: random\nmetric: {name: loss, goal: minimize}\nprogram: train.py\n"
    (tmp_path / "theirs.yaml").write_text(f"{wandb}parameters: {{lr: {{min: 0.0, max: 1.0}}}}\n")
    assert main(["init", "mine", "--from", "theirs.yaml"]) == 0
    text = (tmp_path / "mine" / "space.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=sweep.schema.json\n")
    assert mistakes(read(text)) == []
    assert (tmp_path / "mine" / "sweep.schema.json").is_file()


def test_a_schema_that_lies_there_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.schema.json").write_text("mine")
    assert main(["init"]) == 0
    assert (tmp_path / "sweep.schema.json").read_text() == "mine"


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(schema.schema()))


# ---- broken specs ---------------------------------------------------------------------------


#: Path of the change in `GOOD` → the value that is put there; None: the key is taken out.
BROKEN: dict[tuple[str, ...], Any] = {
    ("trials",): 0,
    ("trails",): 8,
    ("mode",): "maximize",
    ("metric",): ["a", "b"],
    ("space",): None,
    ("name",): "my sweep",
    ("trainable",): "ppo.py",
    ("score",): "mean",
    ("seeds",): "many",
    ("aggregate",): {"lower_bound": 2},
    ("stop", "plateau"): {"min_delta": 1.0},
    ("stop", "learner/entropy"): {"<": 0.01},
    ("budget", "settled"): 2,
    ("budget", "timesteps"): "many",
    ("checkpoint", "max_disk"): "much",
    ("limits", "not_finite"): "ignore",
    ("constraints", "time_this_iter_s"): "under 2",
    ("scheduler",): "ahsa",
    ("scheduler", "grace"): 10,
    ("scheduler", "reduction_factor"): "three",
    ("searcher", "multivariate"): "yes",
    ("searcher",): {"name": "cmaes", "n_startup_trials": 4},
    ("config", "num_worker"): 2,
    ("config", "env"): None,
    ("config", "model", "activation"): "swish2",
    ("config", "evaluation_interval"): -1,
    ("space", "learning_rate"): {"loguniform": [1e-5, 1e-2]},
    ("space", "lr"): {"loguniform": [1e-5]},
    ("space", "lr", "loguniform"): [0, 1],
    ("space", "num_sgd_iter"): {"randint": [1.5, 4]},
    ("space", "gamma"): {"choice": [0.9, 0.9]},
    ("space", "observation_filter_clip"): {"uniform": [5, 20], "whne": "lr > 0"},
    ("space", "num_sgd_iter", "uniform"): [1, 4],
    ("space", "lambda_"): {"vlaue": "1 - _gap"},
    ("space", "clip_param"): {"distribution": "uniform", "min": 0.1},
    ("space", "gamma", "weights"): [0, 1],
    ("space", "train_batch_size"): {"choice": ["big", "small"]},
    ("forbid",): [3],
    ("initial",): [3],
}


def broken(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    raw = copy.deepcopy(read(GOOD))
    inner = raw
    for key in path[:-1]:
        if isinstance(inner[key], str):
            inner[key] = {"name": inner[key]}
        inner = inner[key]
    inner.pop(path[-1], None)
    if value is not None:
        inner[path[-1]] = value
    return raw


def is_refused(raw: dict[str, Any]) -> bool:
    """Whether the program itself refuses a spec, but for what it would find by training."""
    try:
        spec = specs.parse(json.dumps(raw), "a spec")
        for key, find in (("scheduler", schedulers.find), ("searcher", searchers.find)):
            plugin = getattr(spec, key)
            specs.build(find(plugin.name).Options, plugin, key, spec.source)
        model = find_trainable(spec.trainable, []).config_class
        if model is not None:
            for number in range(4):
                settings.parse(
                    model, spec.space.nest(spec.space.draw(number).settings, spec.config)
                )
    except (UsageError, ConfigError):
        return True
    return False


def test_the_spec_that_is_broken_below_is_valid() -> None:
    raw = read(GOOD)
    assert mistakes(raw) == []
    assert not is_refused(raw)


def test_there_are_thirty_broken_ones() -> None:
    assert len(BROKEN) >= 30


@pytest.mark.parametrize("path", BROKEN, ids="/".join)
def test_a_broken_spec_is_refused_where_it_is_broken(path: tuple[str, ...]) -> None:
    raw = broken(path, BROKEN[path])
    found = mistakes(raw)
    assert any(path[-1] in one or repr(path[0]) in one for one in found), found
    assert is_refused(raw), "what the schema refuses cannot work"


# ---- what is installed -------------------------------------------------------------------------

PATIENT = """
from pydantic import BaseModel, Field
from sweep.schedulers.fifo import Scheduler as Fifo
class Options(BaseModel):
    rounds: int = Field(ge=1, description="Rounds without progress.")
class Scheduler(Fifo):
    Options = Options
"""


def test_the_options_of_an_installed_plugin_are_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, points = {"waiting": PATIENT}, {"their-patience": "schema_x.waiting:Scheduler"}
    install(tmp_path / "site", "schema_x", files, {"sweep.schedulers": points})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    judge = jsonschema.Draft7Validator(json.loads(schema.text()))
    raw = read(GOOD)
    assert judge.is_valid({**raw, "scheduler": {"name": "their-patience", "rounds": 3}})
    assert not judge.is_valid({**raw, "scheduler": {"name": "their-patience", "rounds": 0}})
    assert not judge.is_valid({**raw, "scheduler": "their-patience"}), "rounds is needed"


def test_what_somebody_elses_path_names_takes_any_settings() -> None:
    raw = read(GOOD)
    raw |= {"trainable": "train:run", "config": {"anything": 1}, "space": {"x": {"grid": [1]}}}
    raw |= {"scheduler": {"name": "own:Scheduler", "any": 1}, "initial": [], "forbid": []}
    assert mistakes(raw) == []
