import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from sweep.core.errors import BadConfig, Source, UnknownName, UsageError
from sweep.core.plugins import find_trainable
from sweep.spec import (
    CheckpointPolicy,
    Deterministic,
    Mode,
    Override,
    Plugin,
    Score,
    SweepSpec,
    apply_overrides,
    build,
    canonical_json,
    find,
    from_json,
    load,
    parse,
    shipped,
    yaml_source,
)
from sweep.spec.space.domains import Float, sample

MINIMAL = """\
name: tiny
trials: 4
trainable: package.module:Class
metric: loss
mode: min
space:
  lr: {loguniform: [1e-5, 1e-2]}
"""

FULL = """\
name: cartpole-ppo
trials: 64
trainable: ppo
metric: evaluation/episode_reward_mean
mode: max
score: {mean_last: 10}
config:
  env: CartPole-v1
  evaluation_config: {explore: false, seeds: null}
space:
  lr: {loguniform: [1e-5, 1e-2]}
  model.hidden: {choice: [[64, 64], [128, 128]]}
  observation_filter: {choice: [NoFilter, MeanStdFilter]}
  observation_filter_clip: {uniform: [5.0, 20.0], when: {observation_filter: MeanStdFilter}}
  _one_minus_lambda: {loguniform: [0.01, 0.3]}
  lambda_: {value: "1 - _one_minus_lambda"}
stop: {timesteps_total: 100000, evaluation/episode_reward_mean: 500.5}
searcher: {name: tpe, multivariate: true}
scheduler: {name: asha, time_attr: timesteps_total, grace_period: 5000, reduction_factor: 3}
seeds: 1
checkpoint: {every: 2, keep_last: 3, keep_best: 0}
resources: {cpu: 1}
limits: {slice_s: 5, max_failures: 1}
deterministic: {batch: 8}
seed: 9223372036854775807
"""


def test_every_key_of_a_spec_is_read() -> None:
    spec = parse(FULL, "full.yaml")
    assert (spec.name, spec.trials, spec.trainable) == ("cartpole-ppo", 64, "ppo")
    assert (spec.metric, spec.mode) == ("evaluation/episode_reward_mean", "max")
    assert spec.score == Score(kind="mean_last", k=10)
    assert spec.config["evaluation_config"] == {"explore": False, "seeds": None}
    assert spec.space.domains["lr"] == Float(1e-5, 1e-2, log=True)
    assert spec.stop == {"timesteps_total": 100000, "evaluation/episode_reward_mean": 500.5}
    assert isinstance(spec.stop["timesteps_total"], int)
    assert spec.searcher == Plugin(name="tpe", options={"multivariate": True})
    assert spec.scheduler.options["grace_period"] == 5000
    assert spec.checkpoint == CheckpointPolicy(every=2, keep_last=3, keep_best=0)
    assert (spec.limits.slice_s, spec.limits.max_failures) == (5.0, 1)
    assert spec.deterministic == Deterministic(batch=8)
    assert spec.seed == 2**63 - 1


def test_what_is_left_out_has_its_default() -> None:
    spec = parse(MINIMAL, "tiny.yaml")
    assert spec.score == Score(kind="last")
    assert spec.config == {}
    assert spec.stop == {}
    assert (spec.searcher.name, spec.scheduler.name) == ("tpe", "fifo")
    assert spec.checkpoint == CheckpointPolicy(every=None, keep_last=2, keep_best=1)
    assert (spec.limits.slice_s, spec.limits.max_failures) == (30.0, 3)
    assert spec.deterministic is None
    assert (spec.seeds, spec.seed_plan, spec.resources.cpu, spec.seed) == (None, 1, 1, 0)


@pytest.mark.parametrize("text", [MINIMAL, FULL])
def test_a_spec_survives_its_canonical_json_exactly(text: str) -> None:
    spec = parse(text, "x.yaml")
    written = canonical_json(spec)
    again = from_json(written)
    assert again == spec
    assert canonical_json(again) == written
    assert list(again.space.parameters) == list(spec.space.parameters)
    assert type(again.stop) is type(spec.stop)


def test_canonical_json_does_not_depend_on_how_the_file_was_written() -> None:
    block = MINIMAL.replace(
        "{loguniform: [1e-5, 1e-2]}", "\n    loguniform:\n    - 1e-5\n    - 0.01"
    )
    reordered = "".join(reversed(MINIMAL.splitlines(keepends=True)[:5])) + "space:\n"
    reordered += "  'lr': {\"loguniform\": [0.00001, 1.0e-2]}  # the same\nsearcher: {name: tpe}\n"
    written = canonical_json(parse(MINIMAL, "x.yaml"))
    assert canonical_json(parse(block, "y.yaml")) == written
    assert canonical_json(parse(reordered, "z.yaml")) == written


def test_each_field_of_a_spec_says_what_it_means() -> None:
    models: list[type[BaseModel]] = [SweepSpec, CheckpointPolicy, Deterministic, Plugin, Score]
    fields = [field for model in models for field in model.model_fields.values()]
    assert all(field.description and field.description.endswith(".") for field in fields)


# ---- YAML 1.2 -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-5", 1e-5),
        ("1e5", 1e5),
        ("12e03", 12000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("+3", 3),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("on", "on"),
        ("yes", "yes"),
        ("12:30:45", "12:30:45"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("'010'", "010"),
        ('"1e-5"', "1e-5"),
        ("[1, [two], {three: 3.0}]", [1, ["two"], {"three": 3.0}]),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("'2024-01-01'", "2024-01-01"),
        ("=", "="),
        ("0b1", "0b1"),
    ],
)
def test_yaml_is_read_by_version_1_2(written: str, value: Any) -> None:
    read, _ = yaml_source.read(f"key: {written}", "x.yaml")
    assert read == {"key": value}
    assert type(read["key"]) is type(value)


def test_every_key_and_item_knows_its_line() -> None:
    _, source = yaml_source.read("a: 1\nb:\n  c: [1,\n    2]\n  d.e: {f: 3}\n", "x.yaml")
    assert source.locate(("a",)).line == 1
    assert source.locate(("b", "c")).line == 3
    assert source.locate(("b", "c", 1)).line == 4
    assert source.locate(("b", "d.e", "f")).line == 5
    assert source.locate(("b", "missing", "deeper")).line == 2


def test_a_byte_order_mark_and_windows_line_ends_are_read_over(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load(file) == parse(MINIMAL, "x.yaml")


@given(st.text("ab:-[]{},&*!|>'\"%@`#? \n\t1.e~<=\\xu", max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        yaml_source.read(text, "x.yaml")
    except BadConfig as error:
        assert all(line.isprintable() for line in str(error).split("\n"))
        assert error.line is not None


# ---- overrides ------------------------------------------------------------------------------


def test_overrides_are_put_over_the_file() -> None:
    overrides = [
        "trials=8",
        "config.gamma=1e-3",
        "config.env_config.size=[1, 2]",
        "space.lr.loguniform=[1e-4, 1e-3]",
        "space.model.hidden=[32]",
        "space.model.activation={choice: [tanh, relu]}",
        "stop.evaluation/score.mean=3",
        "searcher.multivariate=false",
        "scheduler=fifo",
    ]
    spec = parse(
        FULL.replace("searcher: {name: tpe, multivariate: true}", "searcher: tpe"), "f", overrides
    )
    assert spec.trials == 8
    assert spec.config["gamma"] == 1e-3
    assert spec.config["env_config"] == {"size": [1, 2]}
    assert spec.space.domains["lr"] == Float(1e-4, 1e-3, log=True)
    assert "model.hidden" not in spec.space.domains
    assert spec.space.domains["model.activation"].contains("relu")
    assert spec.stop["evaluation/score.mean"] == 3
    assert spec.searcher == Plugin(name="tpe", options={"multivariate": False})
    assert spec.scheduler == Plugin(name="fifo")


def test_an_override_sets_the_longest_key_that_is_there() -> None:
    raw = {"config": {"env": {"size": 1}, "env.size": 2}}
    changed, _ = apply_overrides(raw, Source(), ["config.env.size=3"])
    assert changed == {"config": {"env": {"size": 1}, "env.size": 3}}


def test_options_that_were_set_for_another_plugin_stay_when_its_name_is_set() -> None:
    raw = {"scheduler": {"name": "asha", "max_t": 9, "grace_period": 1}}
    changed, source = apply_overrides(
        raw, Source(), ["scheduler.grace_period=3", "scheduler.name=hyperband"]
    )
    assert changed == {"scheduler": {"name": "hyperband", "grace_period": 3}}
    (remark,) = source.remarks
    assert remark.endswith("whose options are ignored: max_t")


def test_the_last_override_of_a_key_counts() -> None:
    assert parse(MINIMAL, "x", ["seed=1", "seed=2"]).seed == 2


def test_overrides_change_neither_what_they_are_given_nor_each_other() -> None:
    raw, source = yaml_source.read(FULL, "x.yaml")
    before = copy.deepcopy(raw)
    value = {"size": 1}
    changed, _ = apply_overrides(
        raw, source, [Override("config.env_config", value, "--env"), "config.env_config.size=2"]
    )
    assert changed["config"]["env_config"] == {"size": 2}
    assert raw == before
    assert value == {"size": 1}


def test_an_override_of_a_stored_spec_makes_another() -> None:
    written = canonical_json(parse(MINIMAL, "x.yaml"))
    assert from_json(written, [Override("trials", 128, "--trials 128")]).trials == 128


# ---- plugins --------------------------------------------------------------------------------


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    grace_period: int = Field(1, ge=1)
    rungs: tuple[int, ...] = Field((), strict=False)


def test_the_options_of_a_plugin_are_checked_by_its_own_model() -> None:
    spec = parse(MINIMAL + "scheduler: {name: x, grace_period: 3, rungs: [1, 2]}", "x.yaml")
    assert build(Options, spec.scheduler, "scheduler", spec.source) == Options(
        grace_period=3, rungs=(1, 2)
    )
    assert build(Options, spec.searcher, "searcher", spec.source) == Options()


# ---- scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "mode", "values", "expected"),
    [
        (Score(kind="last"), "max", [3.0, 5.0, 4.0], 4.0),
        (Score(kind="best"), "max", [3.0, 5.0, 4.0], 5.0),
        (Score(kind="best"), "min", [3.0, 5.0, 4.0], 3.0),
        (Score(kind="best"), "max", [3.0, math.nan, math.inf], 3.0),
        (Score(kind="mean_last", k=2), "max", [3.0, 5.0, 4.0], 4.5),
        (Score(kind="mean_last", k=9), "max", [3.0, 5.0, 4.0], 4.0),
        (Score(kind="area"), "min", [3.0, 5.0, 4.0], 4.0),
        (Score(kind="last"), "max", [3.0, math.nan], None),
        (Score(kind="mean_last", k=2), "max", [math.nan, 3.0, 5.0], 4.0),
        (Score(kind="mean_last", k=3), "max", [math.nan, 3.0, 5.0], None),
        (Score(kind="area"), "max", [3.0, -math.inf], None),
        *((Score(kind=kind), "max", [], None) for kind in ("last", "best", "mean_last", "area")),
    ],
)
def test_a_score_reduces_a_curve_to_one_number(
    score: Score, mode: Mode, values: Sequence[float], expected: float | None
) -> None:
    assert score.reduce(values, mode) == expected


# ---- files ----------------------------------------------------------------------------------


def test_a_bare_name_finds_a_shipped_search_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find("quickstart").name == "quickstart.yaml"
    (tmp_path / "quickstart").mkdir()
    assert find("quickstart").name == "quickstart.yaml"
    (tmp_path / "mine.yaml").write_text(MINIMAL)
    assert load(find("mine.yaml")).name == "tiny"
    for unknown in ("quickstrat", "mine", "", "\0", "x" * 5000):
        with pytest.raises(UnknownName, match="quickstart") as caught:
            find(unknown)
        assert caught.value.exit_code == 2
    with pytest.raises(UnknownName, match="did you mean 'quickstart'"):
        find("quickstrat")
    for absent in ("../quickstart", "no/mine.yaml", "\0/x", "./" + "x" * 5000 + ".yaml"):
        with pytest.raises(UsageError, match="there is no such file"):
            find(absent)
    with pytest.raises(UsageError, match=r"did you mean 'mine\.yaml'"):
        find("min.yaml")


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_search_space_proposes_only_what_its_trainable_accepts(name: str) -> None:
    spec = load(find(name))
    assert spec.name == name, "what `sweep run` is given is what `sweep results` takes"
    assert from_json(canonical_json(spec)) == spec
    cls = find_trainable(spec.trainable, [])
    generator = np.random.default_rng(0)
    for _ in range(10):
        found = spec.space.resolve(lambda _, domain: sample(domain, generator))
        config = spec.space.nest(found.settings, spec.config)
        cls.check_config(cls.complete_config(config, spec.stop))


def test_what_the_heads_of_shipped_search_spaces_name_lies_in_their_ranges() -> None:
    for name in ("cartpole_a2c", "cartpole_impala"):
        assert load(find(name)).space.domain_of("lambda_").contains(1.0), name
    widest = load(find("cartpole_ppo")).space
    assert widest.domain_of("num_sgd_iter").contains(20)
    assert widest.domain_of("sgd_minibatch_size").contains(256)
    for name in ("acrobot_dqn", "lunarlander_dqn"):
        assert load(find(name)).space.domain_of("updates_per_step").contains(64), name


GAMES = ("spread_ppo", "tag_ppo", "connect_four_ppo", "knights_archers_zombies_ppo")


@pytest.mark.parametrize("name", GAMES)
def test_a_shipped_game_of_several_agents_trains_and_gives_its_metric(name: str) -> None:
    spec = load(find(name))
    generator = np.random.default_rng(0)
    found = spec.space.resolve(lambda _, domain: sample(domain, generator))
    short = {"num_envs_per_worker": 2, "rollout_fragment_length": 40, "sgd_minibatch_size": 16}
    played = {"evaluation_interval": 1, "evaluation_num_episodes": 1, "env_level": "C"}
    config = spec.space.nest({**found.settings, "num_sgd_iter": 1}, {**spec.config, **played})
    cls = find_trainable(spec.trainable, [])
    trainer = cls(cls.complete_config({**config, **short}, spec.stop))
    result = trainer.train()
    trainer.stop()
    policies = set(config["multiagent"]["policies"])
    assert policies == set(result["evaluation"]["policy_reward_mean"])
    assert result["agent_timesteps_total"] > 40
    value: Any = result
    for part in str(spec.metric).split("/"):
        value = value[part]
    assert np.isfinite(value)
