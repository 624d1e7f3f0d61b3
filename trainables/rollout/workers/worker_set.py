"""All rollout workers of a trainer behind one interface, wherever they are.

Whatever they return stands in the order of their indices, never of arrival.
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

#: Index of a worker → the arguments that it is given.
Arguments: TypeAlias = Callable[[int], tuple[Any, ...]]
T = TypeVar("T")


def same(*args: Any) -> Arguments:
    """These arguments for every worker."""
    return lambda _: args


class WorkerSet:
    """The workers of a trainer; here they are in child processes."""

    _processes: Sequence[ChildProcess] = ()
    version: int = 0
    """The number of updates of the weights, where workers may sample with older ones; else 0."""

    def sample(self) -> list[Sample]:
        """One sample of each worker."""
        raise NotImplementedError

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give the learner's weights and the merged filters to each worker."""
        self._ask("sync", same(weights, filters))

    def get_state(self) -> list[Any]:
        """The state of each worker; None for one that was left out."""
        return list(self._ask("get_state", same()).values())

    def set_state(self, states: Sequence[Any]) -> None:
        """Take back what `get_state` gave, with as many workers as there were then."""
        self._ask("set_state", lambda index: (states[index],))

    def healthy(self) -> int:
        """Child processes that answered last: no result depends on the instant of a death."""
        return len(self._processes)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Give each worker and its policy variables, for example the ``timestep``."""
        self._ask("set_global_vars", same(global_vars))

    def respecify(self, changes: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """Let each worker go on with these fields of its spec; see `AgentsWorker.respecify`."""
        self._ask("respecify", same(changes, known))

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """``function(worker)`` of each, where it lives; what it changes there is in no checkpoint.

        Raises:
            TrainableError: the function raised in a child, or cannot cross to it and back.
        """
        answers = self._ask("apply_packed", same(access.pack(function)))
        return [access.unpack(index, answer) for index, answer in answers.items()]

    def foreach_worker_with_index(self, function: Callable[[RolloutWorker, int], T]) -> list[T]:
        """``function(worker, index)`` of each, where it lives; see `foreach_worker`."""
        return self.foreach_worker(lambda worker: function(worker, worker.spec.index))

    def foreach_env(self, function: Callable[[Any], T]) -> list[list[T]]:
        """``function(env)`` of each unwrapped environment, worker by worker."""
        return self.foreach_worker(lambda worker: worker.foreach_env(function))

    def foreach_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """``function(policy, name)`` of each policy of each worker."""
        of_each = self.foreach_worker(lambda worker: worker.foreach_policy(function))
        return [answer for answers in of_each for answer in answers]

    def foreach_trainable_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """``function(policy, name)`` of each policy of each worker that learns."""
        of_each = self.foreach_worker(lambda worker: worker.foreach_trainable_policy(function))
        return [answer for answers in of_each for answer in answers]

    def local_worker(self) -> RolloutWorker | None:
        """The worker in this process; None where all are children."""
        return None

    def remote_workers(self) -> list["RemoteWorker"]:
        """Those in child processes, in the order of their indices."""
        return [RemoteWorker(self, index) for index in self.foreach_worker(_index)]

    def sync_weights(self, weights: Weights | Mapping[str, Weights]) -> None:
        """Let every worker act with these weights, until it is given the learner's again.

        Args:
            weights: parameter → array, of the only policy, or policy → its weights.
        """
        self.foreach_worker(lambda worker: worker.set_weights(_by_policy(worker, weights)))

    def pids(self) -> list[int]:
        """Of the child processes, by index."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """End them all, at the same time."""
        for process in self._processes:
            process.ask_to_end()
        for process in self._processes:
            process.close()

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        """Index → what ``worker.method`` of the arguments for this index gave, in worker order."""
        raise NotImplementedError


def _by_policy(worker: RolloutWorker, weights: Mapping[str, Any]) -> Mapping[str, Weights]:
    """Return policy → weights, as they may be given for the only policy of a worker."""
    if weights and all(isinstance(one, Mapping) for one in weights.values()):
        return weights
    names = worker.foreach_policy(lambda _, name: name)
    return {name_of_policy(dict.fromkeys(names), ""): weights}


def _index(worker: RolloutWorker) -> int:
    return worker.spec.index


class RemoteWorker:
    """One worker in a child process.

    Args:
        workers: among which it is.
        index: its own.
    """

    def __init__(self, workers: WorkerSet, index: int) -> None:
        self._workers = workers
        self.index = index

    def apply(self, function: Callable[[RolloutWorker], T]) -> T:
        """``function(worker)``, where it lives; see `WorkerSet.foreach_worker`."""
        index = self.index

        def chosen(worker: RolloutWorker) -> list[T]:
            return [function(worker)] if worker.spec.index == index else []

        (answer,) = [one for answers in self._workers.foreach_worker(chosen) for one in answers]
        return answer


class LocalWorkers(WorkerSet):
    """The one worker with index 0, in this process."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.worker: RolloutWorker = (spec.worker_class or RolloutWorker)(spec)

    def sample(self) -> list[Sample]:
        """One sample; its arrays are written again by the next call."""
        return [self.worker.sample()]

    def set_state(self, states: Sequence[Any]) -> None:
        """Take back what `get_state` gave."""
        require_as_many(states, 0)
        self.worker.set_state(states[0])

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """``[function(worker)]``."""
        return [self.worker.apply(function)]

    def local_worker(self) -> RolloutWorker:
        """The only one."""
        return self.worker

    def remote_workers(self) -> list[RemoteWorker]:
        """None."""
        return []

    def close(self) -> None:
        """Close its environments."""
        self.worker.close()

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        return {0: getattr(self.worker, method)(*args(0))}


def require_as_many(states: Sequence[Any], workers: int) -> None:
    """ConfigError for states of more or fewer than `workers` child processes.

    Some would be lost or begin anew. 0: there is the trainer's own worker.
    """
    if len(states) != max(1, workers):
        hint = "each worker goes on where it was"
        raise ConfigError("num_workers", workers, f"{len(states)}, as in the checkpoint", hint)
