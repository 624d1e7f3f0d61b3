"""Files of other tools with values that no tool wrote: nothing is dropped without a note."""

import pytest

from sweep.core.errors import BadConfig
from sweep.operations.foreign import conversion


def convert_zoo(algorithm: str = "ppo", **values: str) -> conversion.Converted:
    """Convert hyperparameters of CartPole; each value is YAML."""
    given = {"n_timesteps": "20000", **values}
    inner = ", ".join(f"{key}: {value}" for key, value in given.items())
    return conversion.convert(f"CartPole-v1: {{{inner}}}\n", f"{algorithm}.yml", "made")


@pytest.mark.parametrize(
    ("value", "observations", "rewards"),
    [
        ("true", True, True),
        ("false", False, False),
        ("null", False, False),
        ("'False'", False, False),
        ("'dict(norm_obs=True, norm_reward=False)'", True, False),
        ("{norm_obs: false}", False, True),
    ],
)
def test_normalization_is_converted(value: str, observations: bool, rewards: bool) -> None:
    converted = convert_zoo(normalize=value)
    config = converted.keys["config"]
    assert ("observation_filter" in config) == observations
    assert ("normalize_rewards" in config) == rewards
    assert converted.notes == []


@pytest.mark.parametrize("value", ["VecNormalize(3)", "dict(", "{[1]: 2}", "nn.ReLU", "[True]"])
def test_a_normalization_that_cannot_be_read_is_reported(value: str) -> None:
    converted = convert_zoo(normalize=f"'{value}'")
    assert converted.notes == [f"Not converted: normalize: '{value}'."]
    assert not converted.keys["config"].keys() & {"observation_filter", "normalize_rewards"}


def test_python_code_that_nests_too_deep_is_reported() -> None:
    assert convert_zoo(policy_kwargs=f"a{'.a' * 10_000}").notes[0].startswith("Not converted: pol")


@pytest.mark.parametrize("value", ["'odd'", "[1, 2]", ".inf", "'1e400'"])
def test_a_value_of_the_zoo_that_is_no_number_is_reported(value: str) -> None:
    keys = [
        *("learning_rate", "clip_range", "ent_coef", "n_steps", "n_envs", "train_freq"),
        *("gradient_steps", "target_update_interval", "exploration_fraction"),
        *("exploration_initial_eps", "exploration_final_eps", "with_schedule"),
    ]
    for algorithm in ("ppo", "dqn"):
        converted = convert_zoo(algorithm, **dict.fromkeys(keys, value))
        assert [key for key in keys if f"{key}: " not in converted.notes[0]] == []
        assert len(converted.keys["space"]["lr"]["loguniform"]) == 2


@pytest.mark.parametrize("value", ["'odd'", "[1, 2]", "null", ".inf", "0", "-5"])
def test_a_number_of_steps_that_is_none_is_an_error_of_the_user(value: str) -> None:
    with pytest.raises(BadConfig, match=r"n_timesteps: .* expected a number of environment steps"):
        convert_zoo(n_timesteps=value)


@pytest.mark.parametrize("key", ["n_steps", "n_envs", "train_freq"])
def test_rounds_of_no_steps_are_left_to_the_check_of_the_spec(key: str) -> None:
    config = convert_zoo(**{key: "0"}).keys["config"]
    assert 0 in (config["rollout_fragment_length"], config["num_envs_per_worker"])


def test_gradient_steps_per_step_need_no_number_of_environments() -> None:
    converted = convert_zoo("dqn", gradient_steps="-1", train_freq="8", n_envs="odd")
    assert converted.keys["config"]["updates_per_step"] == 8
    assert converted.notes == ["Not converted: n_envs: 'odd'."]


def test_an_environment_may_be_named_by_a_number() -> None:
    converted = conversion.convert("7: {n_timesteps: 100}\n", "ppo.yml", "made")
    assert converted.keys["config"]["env"] == "7"


def convert_wandb(early_terminate: str) -> conversion.Converted:
    """Convert a sweep of W&B with this early termination, written in YAML."""
    text = f"method: random\nparameters: {{lr: 0.1}}\nearly_terminate: {early_terminate}\n"
    return conversion.convert(text, "wandb.yaml", "made")


@pytest.mark.parametrize(
    ("options", "first", "last", "eta"),
    [
        ("max_iter: 27", 3, 27, 3),
        ("max_iter: 27, s: 3, eta: 2", 3, 27, 2),
        ("max_iter: 27, s: 1000", 1, 27, 3),
        ("min_iter: 2", 2, 486, 3),
    ],
)
def test_early_termination_becomes_asha(options: str, first: int, last: int, eta: int) -> None:
    scheduler = convert_wandb(f"{{type: hyperband, {options}}}").keys["scheduler"]
    assert scheduler == {
        "name": "asha",
        "type": "stopping",
        "grace_period": first,
        "max_t": last,
        "reduction_factor": eta,
    }


@pytest.mark.parametrize(
    "given",
    [
        *("hyperband", "3", "{type: other}", "{type: [hyperband]}", "{type: hyperband, s: odd}"),
        *("{type: hyperband, max_iter: odd}", "{type: hyperband, max_iter: .inf}"),
        *("{type: hyperband, max_iter: 27, eta: odd}", "{type: hyperband, max_iter: 27, eta: 0}"),
        *("{type: hyperband, min_iter: null}", "{type: hyperband, min_iter: 1e400}"),
    ],
)
def test_early_termination_that_cannot_be_read_is_reported(given: str) -> None:
    converted = convert_wandb(given)
    assert "scheduler" not in converted.keys
    assert converted.notes[-1].startswith("Not converted: early_terminate ")


def test_odd_values_of_a_sweep_of_wandb_are_dates_as_text_or_left_to_the_check_of_the_spec() -> (
    None
):
    text = "method: grid\nparameters: {a: {values: [2026-01-02, 1]}, b: {values: 3}}\n"
    made = conversion.convert(text, "wandb.yaml", "made")
    assert made.keys["trials"] == 2 * conversion.TRIALS
    assert '    values: ["2026-01-02", 1]\n' in made.text("wandb.yaml")
    made = conversion.convert(text.replace("3", ".inf"), "wandb.yaml", "made")
    with pytest.raises(BadConfig, match=r"^space\.b\.values: inf is not allowed"):
        made.text("wandb.yaml")


def test_no_early_termination_needs_no_note() -> None:
    assert "early_terminate" not in " ".join(convert_wandb("null").notes)
