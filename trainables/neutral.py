"""Settings of features that are not built: their neutral values are accepted, others refused.

So a config that spells out every classic default works, and one that asks for more is told.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from trainables import renamed
from trainables.errors import nearest
from trainables.settings import Section

ESTIMATORS = ("is", "wis", "simulation", "pdis")


def _only(*neutral: Any, needs: str) -> BeforeValidator:
    """Refuses every value but these."""

    def check(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in neutral):
            allowed = " or ".join(repr(one) for one in neutral)
            raise ValueError(f"{allowed}: other values come with {needs}, which is not built yet")
        return value

    return BeforeValidator(check)


def _estimators(names: Any) -> Any:
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise ValueError(f"a list of strings, each one of {', '.join(ESTIMATORS)}")  # noqa: TRY004
    for name in names:
        if name not in ESTIMATORS:
            raise ValueError(f"a list of strings, each one of {', '.join(ESTIMATORS)}")
    return list(names)


#: The classic defaults of what stands in ``multiagent``, any of which may be left out.
_ONE_AGENT: Mapping[str, tuple[Any, ...]] = {
    "policies": ({}, None),
    "policy_mapping_fn": (None,),
    "policies_to_train": (None,),
    "observation_fn": (None,),
    "replay_mode": ("independent",),
    "count_steps_by": ("env_steps",),
    "policy_map_capacity": (100,),
    "policy_map_cache": (None,),
}


def _one_agent(agents: Any) -> Any:
    """Refuses whatever asks for more than one policy."""
    if not isinstance(agents, Mapping):
        raise ValueError("a dict; {} says that there is one agent")  # noqa: TRY004 for pydantic
    for key, value in agents.items():
        if key not in _ONE_AGENT:
            known = nearest(key, _ONE_AGENT).removeprefix("; ") or ", ".join(_ONE_AGENT)
            raise ValueError(f"no {key}: {known}")
        if not any(type(value) is type(one) and value == one for one in _ONE_AGENT[key]):
            neutral = " or ".join(repr(one) for one in _ONE_AGENT[key])
            raise ValueError(
                f"{key}: {neutral}: other values come with multi-agent support, which is not "
                f"built yet"
            )
    return dict(agents)


def _todays_names(agents: Any) -> Any:
    for key in agents if isinstance(agents, dict) else ():
        if (place := f"multiagent.{key}") in renamed.TABLE:
            raise ValueError(f"no {key}: {renamed.TABLE[place]}")
    return agents


_OFFLINE = "offline data"


class OfflineConfig(Section):
    """Learning from files and writing them; not built, so other values than these are refused."""

    input: Annotated[str, _only("sampler", needs=_OFFLINE)] = Field(
        default="sampler", description="Where experience comes from: the environment."
    )
    input_evaluation: Annotated[
        list[str], _only(["is", "wis"], needs=_OFFLINE), BeforeValidator(_estimators)
    ] = Field(
        default_factory=lambda: ["is", "wis"],
        description="Estimators for experience of other policies; the sampler's needs none.",
    )
    postprocess_inputs: Annotated[bool, _only(False, needs=_OFFLINE)] = Field(
        default=False, description="Whether experience that is read is postprocessed."
    )
    shuffle_buffer_size: Annotated[int, _only(0, needs=_OFFLINE)] = Field(
        default=0, description="Batches that are shuffled while they are read."
    )
    output: Annotated[None, _only(None, needs=_OFFLINE)] = Field(
        default=None, description="Where experience is written: nowhere."
    )
    output_compress_columns: Annotated[list[str], _only(["obs", "new_obs"], needs=_OFFLINE)] = (
        Field(
            default_factory=lambda: ["obs", "new_obs"],
            description="Columns that are compressed when experience is written.",
        )
    )
    output_max_file_size: Annotated[int, _only(64 * 2**20, needs=_OFFLINE)] = Field(
        default=64 * 2**20, description="Bytes after which a new file is begun."
    )


class MultiAgentConfig(Section):
    """Several policies at once; not built, so other values than these are refused."""

    multiagent: Annotated[
        dict[str, Any],
        BeforeValidator(_one_agent),
        BeforeValidator(_todays_names),
    ] = Field(default_factory=dict, description="Policies by name, and which agent has which.")
    observation_fn: Annotated[None, _only(None, needs="multi-agent support")] = Field(
        default=None, description="Changes what agents observe of each other."
    )
