"""All rollout workers of a trainer behind one interface, in this process or in children.

Results are in the order of the workers' indices, never in that of arrival.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from trainables.core.processes.child import ChildProcess
from trainables.errors import ConfigError
from trainables.policies.acting.actor import Actor, Weights
from trainables.rollout.batch import Sample
from trainables.rollout.workers import access
from trainables.rollout.workers.access import name_of_policy
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec

#: Function of a worker's index that returns the arguments for this worker.
Arguments: TypeAlias = Callable[[int], tuple[Any, ...]]
T = TypeVar("T")


def constant_args(*args: Any) -> Arguments:
    """Return a function of a worker's index that always returns `args`."""
    return lambda _: args


class WorkerSet:
    """All rollout workers of a trainer, in this process or in children; lists are by index."""

    _processes: Sequence[ChildProcess] = ()
    """Child processes of the workers, by index."""
    version: int = 0
    """Number of updates of the weights so far, if workers may sample with older ones; otherwise
    0."""

    def sample(self) -> list[Sample]:
        """Collect and return the samples of one round; waits for them.

        They are one of each worker, by index, without workers that were left out. But workers that
        sample while the trainer learns return those that arrive first, and workers that read files
        return what they read.
        """
        raise NotImplementedError

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Send the learner's weights and the merged filters to each worker, for its next sample.

        `filters` is name → state of the trainer's filter.
        """
        self._ask("sync", constant_args(weights, filters))

    def get_state(self) -> list[Any]:
        """Return the state of each worker; None for a worker that was left out."""
        return list(self._ask("get_state", constant_args()).values())

    def set_state(self, states: Sequence[Any]) -> None:
        """Restore the states that `get_state` returned, with the same number of workers.

        Subclasses raise ConfigError for another number of states.
        """
        self._ask("set_state", lambda index: (states[index],))

    def healthy(self) -> int:
        """Return the number of child processes in use; 0 if the worker is in this process.

        Those that failed and were left out do not count. The children are not asked now, so that no
        result depends on the instant of a death.
        """
        return len(self._processes)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Send variables, such as ``timestep``, to each worker and its policy."""
        self._ask("set_global_vars", constant_args(global_vars))

    def change_policies(self, changes: Mapping[str, Any], filter_states: Mapping[str, Any]) -> None:
        """Continue with other policies in each worker; see `AgentsWorker.change_policies`.

        `changes` is field of `AgentsSpec` → new value, `filter_states` policy to be created anew →
        (``observation`` and ``reward`` → state of this filter). Workers of one policy raise
        NotImplementedError.
        """
        self._ask("change_policies", constant_args(changes, filter_states))

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """Return ``function(worker)`` of each worker, called in the worker's process.

        Workers that were left out have no result. Checkpoints do not contain changes that the
        function makes.

        Raises TrainableError if the function raised in a child, or it or its result cannot be sent.
        """
        answers = self._ask("apply_packed", constant_args(access.pack(function)))
        return [access.unpack(index, answer) for index, answer in answers.items()]

    def foreach_worker_with_index(self, function: Callable[[RolloutWorker, int], T]) -> list[T]:
        """Return ``function(worker, index)`` of each worker, called in its process.

        Raises TrainableError if the function raised in a child, or cannot be sent.
        """
        return self.foreach_worker(lambda worker: function(worker, worker.spec.index))

    def foreach_env(self, function: Callable[[Any], T]) -> list[list[T]]:
        """Return ``function(env)`` of each unwrapped environment, worker by worker.

        It is called in the worker's process. Raises TrainableError if it raised in a child, or
        cannot be sent.
        """
        return self.foreach_worker(lambda worker: worker.foreach_env(function))

    def foreach_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """Return ``function(policy, name)`` for each policy of each worker, all in one list.

        `policy` is the actor in the worker, where the function is called. Raises TrainableError if
        it raised in a child, or cannot be sent.
        """
        of_each = self.foreach_worker(lambda worker: worker.foreach_policy(function))
        return [answer for answers in of_each for answer in answers]

    def foreach_trainable_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """Return ``function(policy, name)`` for each learning policy of each worker, in one list.

        `policy` is the actor in the worker, where the function is called. Raises TrainableError if
        it raised in a child, or cannot be sent.
        """
        of_each = self.foreach_worker(lambda worker: worker.foreach_trainable_policy(function))
        return [answer for answers in of_each for answer in answers]

    def local_worker(self) -> RolloutWorker | None:
        """Return the worker in this process; None if all workers are in children."""
        return None

    def remote_workers(self) -> list["RemoteWorker"]:
        """Return a `RemoteWorker` for each worker in a child process; asks the children."""
        return [RemoteWorker(self, index) for index in self.foreach_worker(_index)]

    def sync_weights(self, weights: Weights | Mapping[str, Weights]) -> None:
        """Load these weights in every worker, until the learner's weights are sent again.

        They are parameter → array for the only policy, or policy → its weights. Raises
        TrainableError if a child refuses them; a worker in this process raises its own error.
        """
        self.foreach_worker(lambda worker: worker.set_weights(_by_policy(worker, weights)))

    def pids(self) -> list[int]:
        """Return the process ids of the children, by index; empty if the worker is here."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """End all children at the same time; those that do not end within seconds are killed."""
        for process in self._processes:
            process.ask_to_end()
        for process in self._processes:
            process.close()

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        """Call ``method(*args(index))`` of each worker, and return index → result, by index.

        Workers that were left out have no result. Raises TrainableError if a worker fails for good.
        """
        raise NotImplementedError


def _by_policy(worker: RolloutWorker, weights: Mapping[str, Any]) -> Mapping[str, Weights]:
    """Return `weights` as policy → weights.

    If they are parameter → array, they are those of the worker's only policy; raises ConfigError if
    the worker has several.
    """
    if weights and all(isinstance(one, Mapping) for one in weights.values()):
        return weights
    names = worker.foreach_policy(lambda _, name: name)
    return {name_of_policy(dict.fromkeys(names), ""): weights}


def _index(worker: RolloutWorker) -> int:
    """Return the worker's index; a function for `WorkerSet.foreach_worker`."""
    return worker.spec.index


class RemoteWorker:
    """A worker in a child process, to which functions can be sent."""

    def __init__(self, workers: WorkerSet, index: int) -> None:
        self._workers = workers
        self.index = index

    def apply(self, function: Callable[[RolloutWorker], T]) -> T:
        """Return ``function(worker)``, called in the process of this worker.

        All workers of the set are asked, and the others do nothing. Raises TrainableError if the
        function raised there or cannot be sent, ValueError if the worker was left out since.
        """
        index = self.index

        def chosen(worker: RolloutWorker) -> list[T]:
            """Return a list with the result if it is this worker, else an empty list."""
            return [function(worker)] if worker.spec.index == index else []

        (answer,) = [one for answers in self._workers.foreach_worker(chosen) for one in answers]
        return answer


class LocalWorkers(WorkerSet):
    """A set of one worker, index 0, in this process."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.worker: RolloutWorker = (spec.worker_class or RolloutWorker)(spec)

    def sample(self) -> list[Sample]:
        """Return a list of one sample, whose arrays the next call overwrites."""
        return [self.worker.sample()]

    def set_state(self, states: Sequence[Any]) -> None:
        """Restore the states that `get_state` returned; raises ConfigError unless there is one."""
        require_as_many(states, 0)
        self.worker.set_state(states[0])

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """Return ``[function(worker)]`` for the one worker of this process.

        An exception of the function is not changed.
        """
        return [self.worker.apply(function)]

    def local_worker(self) -> RolloutWorker:
        """Return the only worker."""
        return self.worker

    def remote_workers(self) -> list[RemoteWorker]:
        """Return an empty list."""
        return []

    def close(self) -> None:
        """Close the worker."""
        self.worker.close()

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        """Call ``method(*args(0))`` of the worker, and return {0: result}."""
        return {0: getattr(self.worker, method)(*args(0))}


def require_as_many(states: Sequence[Any], workers: int) -> None:
    """Raise ConfigError unless there are as many states as workers.

    `workers` is the number of child processes; 0 stands for the trainer's own worker. Otherwise
    some states would be lost, or some workers would start from the beginning.
    """
    if len(states) != max(1, workers):
        why = "each worker continues its own episodes"
        raise ConfigError.of_checkpoint("num_workers", workers, len(states), why)
