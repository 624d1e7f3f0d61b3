"""Trainers of reinforcement-learning agents that can be stopped, saved and continued exactly.

trainable   the contract: what can be trained, saved and continued
function    a plain function as a Trainable, also in the forms of other tools
errors      every error of a trainable, by what a person can do
stacks      many trials as lanes of one compiled program
algorithms  one file each: settings, loss and training step
trainer     sample → learn → synchronise → evaluate → result
evaluation  exactly N fresh episodes, filters frozen
learners    pure parts of learning: returns, schedules, sequences
offline     stored experience, written to files and learnt from
rollout     environments stepped by a policy, here or in child processes
policies    networks, distributions, filters; learning in torch, acting in numpy
envs        environments made, stepped side by side, saved and restored
checkpoint  one file, whole or absent, that holds data only
core        what everything rests on: settings, random streams, processes
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.envs.spaces.connectors import Connector
    from trainables.function import get_checkpoint, get_context, report
    from trainables.rollout.alone import PolicyEvaluator, RolloutWorker
    from trainables.rollout.callbacks import Callbacks
    from trainables.trainable import Trainable

#: Name in this package → module from which it is imported at first use.
_HOMES = {
    "Callbacks": "trainables.rollout.callbacks",
    "Connector": "trainables.envs.spaces.connectors",
    "PolicyEvaluator": "trainables.rollout.alone",
    "RolloutWorker": "trainables.rollout.alone",
    "Trainable": "trainables.trainable",
    "get_checkpoint": "trainables.function",
    "get_context": "trainables.function",
    "report": "trainables.function",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first access, so that importing an error alone stays cheap.

    Raises AttributeError for any other name.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "Callbacks",
    "Connector",
    "PolicyEvaluator",
    "RolloutWorker",
    "Trainable",
    "get_checkpoint",
    "get_context",
    "report",
]
