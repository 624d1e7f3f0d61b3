"""Settings of a policy server: spaces, address, token and limits."""

from typing import Any

from pydantic import Field, field_validator

from trainables.core.settings import Settings, WrongKey
from trainables.envs.external.tokens import VARIABLE
from trainables.envs.external.wire import parse_space


class ServerConfig(Settings):
    """Settings of a policy server in `env_config`."""

    spaces_of: str | None = Field(
        default=None, description="Environment whose spaces are used, such as CartPole-v1."
    )
    observation_space: dict[str, Any] | None = Field(
        default=None, description="Observation space as plain data: {box: [4], low: -1, high: 1}."
    )
    action_space: dict[str, Any] | None = Field(
        default=None, description="Action space as plain data: {discrete: 2}."
    )
    agents: dict[str, dict[str, Any]] | None = Field(
        default=None,
        description="With several agents: agent → its observation_space and action_space.",
    )
    host: str = Field(default="127.0.0.1", description="Address on which the server listens.")
    port: int = Field(
        default=9900,
        ge=0,
        lt=2**16,
        description="Port on which the server listens; 0: any free one.",
    )
    ports: int = Field(
        default=1,
        gt=0,
        description="Number of ports, of which the first free one is used, so that trials can run "
        "at the same time.",
    )
    token_file: str | None = Field(
        default=None,
        description=f"File with the token; null: {VARIABLE}, or ~/.config/sweep/policy-token.",
    )
    max_clients: int = Field(
        default=256, gt=0, description="Maximum number of simultaneous connections."
    )
    max_episodes: int = Field(
        default=1024, gt=0, description="Maximum number of simultaneous episodes."
    )
    max_body_bytes: int = Field(
        default=2**23, gt=0, description="Maximum size of a request, in bytes."
    )
    answer_s: float = Field(
        default=10.0,
        gt=0,
        le=60,
        description="Seconds after which a waiting client is asked to repeat its request.",
    )
    read_timeout_s: float = Field(
        default=60.0, gt=0, description="Seconds after which a silent connection is closed."
    )
    episode_timeout_s: float = Field(
        default=300.0, gt=0, description="Seconds after which a silent episode is abandoned."
    )

    @field_validator("observation_space", "action_space")
    @classmethod
    def _space(cls, value: Any) -> Any:
        """Return the JSON description of a space unchanged; WrongKey if it describes none."""
        if value is not None:
            _check_space(value)
        return value

    @field_validator("agents")
    @classmethod
    def _agents(cls, value: Any) -> Any:
        """Return agent → its two described spaces unchanged; WrongKey unless each has these."""
        for agent, both in (value or {}).items():
            missing = [f"{key} is missing" for key in _OF_AN_AGENT if key not in both]
            unknown = [f"{key} is not a known key" for key in both if key not in _OF_AN_AGENT]
            for problem in missing or unknown:
                hint = f"an agent needs {' and '.join(_OF_AN_AGENT)} and no other key"
                raise WrongKey((agent,), both, hint=hint, problem=problem)
            for key, one in both.items():
                _check_space(one, agent, key)
        return value


_OF_AN_AGENT = ("observation_space", "action_space")
"""Keys of an agent's entry."""


def _check_space(data: Any, *path: str) -> None:
    """Raise WrongKey, about the key at `path`, if `data` describe no space."""
    try:
        parse_space(data)
    except ValueError as error:
        raise WrongKey(path, data, f"a space such as {_EXAMPLES}", problem=str(error)) from error


_EXAMPLES = "{discrete: 2} or {box: [4], low: -1, high: 1}"
"""Two descriptions of spaces, for messages."""
