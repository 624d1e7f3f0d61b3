"""Trainers of reinforcement-learning agents that can be stopped, saved and continued exactly.

trainable   the contract: what can be trained, saved and continued
function    a plain function as a Trainable
errors      every error of a trainable, by what a person can do
algorithms  one file each: settings, loss and training step
trainer     sample → learn → synchronise → evaluate → result
evaluation  exactly N fresh episodes, filters frozen
learners    pure parts of learning: returns, schedules, sequences
rollout     environments stepped by a policy, here or in child processes
policies    networks, distributions, filters; learning in torch, acting in numpy
envs        environments made, stepped side by side, saved and restored
checkpoint  one file, whole or absent, that holds data only
core        what everything rests on: settings, random streams, processes
"""

from trainables.function import get_checkpoint, get_context, report
from trainables.rollout.callbacks import Callbacks
from trainables.trainable import Trainable

__all__ = ["Callbacks", "Trainable", "get_checkpoint", "get_context", "report"]
