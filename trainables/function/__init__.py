"""A plain function as a Trainable: it runs in its own thread, paused inside `report()`.

    def train(config):
        model = build(config)
        start = get_checkpoint()                 # the last checkpoint's data; None at first
        first = 0 if start is None else start["i"] + 1
        for i in range(first, 100):
            report({"loss": ...}, checkpoint={"i": i, ...})   # data, or a folder of files

One report is one iteration. A dict that the function returns is its last report, and so is a
number, which is the metric of its sweep. The end of a function that returns neither is no
iteration: `train` then gives the last result again, with ``done: True`` and the same
``training_iteration``.

If the function is called outside a sweep, `report` prints its arguments, and there is no
checkpoint.

Caller and function take turns, so they never draw from the global random streams at the same
time. A restored function starts from its first line. Its first `get_checkpoint` restores the global
streams to their states at the report of the checkpoint, so random numbers drawn before that call,
to build a model, have no effect afterwards: build the model first, then call it.

thread      the thread of the function, and the functions that it calls: report and others
trainable   the Trainable whose iterations are the reports of a function
saving      whether its reports have checkpoints, from the source
inspection  the names in a function, and the modules of their values
forms       the forms in which such functions are written, those of other tools too
objectives  the form of Optuna's objectives: runs one with the settings of a trial
exploration  finds the settings that an objective asks for
"""

from trainables.function.inspection import TrainingFunction, name_of, names_in
from trainables.function.saving import never_saves
from trainables.function.thread import Checkpoint, get_checkpoint, get_context, report
from trainables.function.trainable import FunctionTrainable, saved_by_function, wrap

__all__ = [
    "Checkpoint",
    "FunctionTrainable",
    "TrainingFunction",
    "get_checkpoint",
    "get_context",
    "name_of",
    "names_in",
    "never_saves",
    "report",
    "saved_by_function",
    "wrap",
]
