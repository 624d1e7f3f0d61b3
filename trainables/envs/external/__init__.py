"""Environments that call the trainer: in a thread, or over HTTP.

polled   the interface of environments that are polled: names, errors, results
values   checks of the values that callers give
calling  an environment with a thread of its own
polling  polls an environment, and answers it
config   settings of a policy server
server   an environment whose episodes are played by clients
client   plays episodes with the policy of a server
wire     what stands in their requests and answers
tokens   the token that they share
"""

from trainables.envs.external.calling import ExternalEnv
from trainables.envs.external.client import PolicyClient, PolicyServerError
from trainables.envs.external.polled import ASYNC_RESET, EpisodeError, EpisodeLost
from trainables.envs.external.server import PolicyServer

__all__ = [
    "ASYNC_RESET",
    "EpisodeError",
    "EpisodeLost",
    "ExternalEnv",
    "PolicyClient",
    "PolicyServer",
    "PolicyServerError",
]
