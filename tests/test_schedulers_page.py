"""What docs/schedulers.md says is so: every example works, every name and option exists."""

import re
from pathlib import Path
from typing import Any

import optuna
import pytest

from sweep import schedulers
from sweep.core import plugins
from sweep.core.errors import BadConfig
from sweep.schedulers import SchedulerContext, hyperband
from sweep.schedulers._shared.rungs import RungOptions
from sweep.spec import yaml_source
from sweep.spec.space import Space
from trainables.algorithms.ppo import PPO

PAGE = (Path(__file__).parents[1] / "docs/schedulers.md").read_text()
FRAME = SchedulerContext(
    {"training_iteration": 100}, 8, Space.parse({"x": {"uniform": [0.0, 1.0]}})
)
EXAMPLES = sorted(set(re.findall(r"`scheduler: (\{.*?\})`", PAGE)))
WRITTEN = sorted(set(re.findall(r"`(\{name: [^`…]*\})`", PAGE)))


def build(written: str) -> None:
    raw: Any = yaml_source.read_value(written, written, ("scheduler",))
    cls = schedulers.find(raw.pop("name"))
    cls(cls.Options.model_validate(raw), FRAME)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 10
    assert len(WRITTEN) >= 3


@pytest.mark.parametrize("written", sorted({*EXAMPLES, *WRITTEN}))
def test_every_example_works(written: str) -> None:
    if "best.yaml" in written:
        with pytest.raises(BadConfig, match="export-schedule"):
            build(written)
    else:
        build(written)


def test_no_scheduler_is_named_that_there_is_not() -> None:
    named = {re.findall(r"name: (\w+)", example)[0] for example in EXAMPLES}
    assert named <= set(plugins.names(schedulers.PACKAGE))


def test_every_option_that_the_page_names_exists() -> None:
    every = (
        set(SchedulerContext.__dataclass_fields__)
        | {"mean_last", "score", "time_attr"}
        | PPO.fixed_keys
    )
    for name in plugins.names(schedulers.PACKAGE):
        every |= set(schedulers.find(name).Options.model_fields)
    ours = PAGE.partition("## Names elsewhere")[0]
    words = set(re.findall(r"`([a-z]+_[a-z_]+)`", ours))
    results = {"episode_reward_mean", "own_steps", "timesteps_total", "training_iteration"}
    assert words <= every | results | {"pbt_replay", "save_checkpoint"}


def test_every_pruner_of_optuna_is_mapped() -> None:
    for name in optuna.pruners.__all__:
        assert name == "BasePruner" or f"`{name}`" in PAGE


def test_a_round_of_hyperband_is_as_large_as_the_page_says() -> None:
    sizes = hyperband.Scheduler(RungOptions(max_t=81), SchedulerContext()).sizes
    assert f"{' + '.join(map(str, sizes))} = {sum(sizes)} trials" in PAGE
