"""Files of other tools with values that no tool wrote: nothing is dropped without a note."""

import pytest

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
    assert convert_zoo(policy_kwargs=f"a{'.a' * 100_000}").notes[0].startswith("Not converted: pol")
