"""Trainers of reinforcement-learning agents that can be stopped, saved and continued exactly.

Nothing here knows of sweeps: ``PPO(config).train()``, ``.save()`` and ``.restore()`` work alone.
"""

from trainables.callbacks import Callbacks
from trainables.function import get_checkpoint, get_context, report
from trainables.trainable import Trainable

__all__ = ["Callbacks", "Trainable", "get_checkpoint", "get_context", "report"]
