"""A thread that samples while the learner works; results wait in a short queue.

The thread pauses between two ticks whenever its owner wants to read, save or change the sampler. It
ends with its owner, also if the owner is never closed. The timing of the two threads decides which
weights chose which action, so nothing here is exact to the bit.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from trainables.errors import WorkerError
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.samplers.fragments import Collected, Sampler

#: Results that wait; with so many the thread waits as well.
RESULTS = 5
TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class _AbandonedError(Exception):
    """The running collection was abandoned, and its samples are not wanted."""


class AsyncSampler:
    """Runs a sampler in a daemon thread that begins with the first `get_data`.

    Args:
        sampler: sampler whose `sample` only the thread calls.
        timeout_s: seconds that `get_data` and `paused` wait for the thread, and after which the
            thread warns that its results are not taken, but waits on, since an evaluation may be
            long; None for `TIMEOUT_S`.
    """

    def __init__(
        self, sampler: Sampler, stream: np.random.Generator, timeout_s: float | None = None
    ) -> None:
        self._sampler = sampler
        self._stream = stream
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._changed = threading.Condition()  # guards everything below
        self._results: deque[Collected | BaseException] = deque()
        self._episodes: list[RolloutMetrics] = []
        self._thread: threading.Thread | None = None
        self._pauses = 0
        self._is_paused = False
        self._is_abandoning = False
        self._shutdown = False
        self._has_finished = False  # the thread gives no more results, though it may still be alive
        self._farewell: Callable[[], None] | None = None
        sampler.between_ticks = self._pause_if_wanted

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and not self._has_finished and self._thread.is_alive()

    def next(self) -> Collected:
        """Return the oldest result, with the episodes of all results since the last call."""
        data = self.get_data()
        return data._replace(episodes=self.get_metrics())

    def get_data(self) -> Collected:
        """Return the oldest result without its episodes; waits for one.

        Raises:
            BaseException: the exception of the thread, after the results before it.
            WorkerError: the thread is dead, or there was no result in time.
        """
        with self._changed:
            if self._thread is None:
                self._start()
            came = self._changed.wait_for(lambda: self._results or not self.alive, self._timeout_s)
            if not came:
                raise WorkerError(
                    f"{self._sampler.name}: the sampling thread returned nothing within "
                    f"{self._timeout_s} s; a step of the environment hangs, or is too slow for "
                    "sample_async: true"
                )
            if not self._results:
                raise self._death_error()
            result = self._results.popleft()
            self._changed.notify_all()
        if isinstance(result, BaseException):
            raise result
        return result

    def get_metrics(self) -> list[RolloutMetrics]:
        """Return the episodes that ended since the last call, without waiting."""
        with self._changed:
            drained, self._episodes = self._episodes, []
        return drained

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the thread between two steps of the environments while the context is open.

        Raises WorkerError if the thread did not finish its step in time.
        """
        with self._changed:
            self._pauses += 1
        try:
            with self._changed:
                if not self._changed.wait_for(
                    lambda: self._is_paused or not self.alive, self._timeout_s
                ):
                    raise WorkerError(
                        f"{self._sampler.name}: the sampling thread did not reach the end of a "
                        f"step within {self._timeout_s} s"
                    )
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()

    def discard(self) -> None:
        """Drop all results and the running collection; call it while the thread is paused."""
        with self._changed:
            self._results.clear()
            self._episodes.clear()
            self._is_abandoning = self.alive
            if not self.alive:
                self._thread = None

    def abandon(self, farewell: Callable[[], None]) -> None:
        """End the thread after its step without waiting, then call `farewell` once.

        The thread calls `farewell` if it is alive, otherwise this method does.
        """
        with self._changed:
            self._shutdown = True
            if self.alive:
                self._farewell = farewell
            self._changed.notify_all()
            later = self._farewell is not None
        if not later:
            farewell()

    def close(self) -> None:
        """End the thread after its step of the environments; a second call does nothing.

        It waits for `STOP_TIMEOUT_S` seconds, and warns if the thread is still in a step then.
        """
        with self._changed:
            self._shutdown = True
            self._changed.notify_all()
        if self._thread is None:
            return
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            logger.warning(
                "%s: the sampling thread is still in a step of the environment after %s s",
                *(self._sampler.name, STOP_TIMEOUT_S),
            )

    def _death_error(self) -> WorkerError:
        """Return the error for a dead thread."""
        return WorkerError(
            f"{self._sampler.name}: the sampling thread is dead; restore from a checkpoint to "
            "start another"
        )

    # ---- in the thread -----------------------------------------------------------------------

    def _start(self) -> None:
        """Start the thread."""
        self._has_finished = False
        name = f"sampler of {self._sampler.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Collect until shutdown; an exception becomes the last result."""
        try:
            while not self._shutdown:
                self._collect()
        except BaseException as error:  # noqa: BLE001 whatever it is, the owner must hear of it
            with self._changed:
                self._results.append(error)
        finally:
            with self._changed:
                self._is_paused = self._has_finished = True  # permanently
                self._changed.notify_all()
                farewell = self._farewell
            if farewell:
                farewell()

    def _collect(self) -> None:
        """Collect one result, unless the collection is abandoned."""
        try:
            collected = self._sampler.sample(self._stream)
            with self._changed:
                self._keep_result(collected)
                self._changed.notify_all()
        except _AbandonedError:
            self._is_abandoning = False

    def _keep_result(self, collected: Collected) -> None:
        """Wait for room in the queue; append a copy of the result, its episodes apart."""
        self._pause_until(lambda: len(self._results) < RESULTS)
        # The sampler writes into the same arrays again.
        own = [fragment.copy() for fragment in collected.fragments]
        self._results.append(collected._replace(fragments=own, episodes=[]))
        self._episodes += collected.episodes

    def _pause_if_wanted(self) -> None:
        """Pause between two steps if the owner of the sampler has requested it."""
        if self._pauses or self._is_abandoning or self._shutdown:
            with self._changed:
                self._pause_until(lambda: True)

    def _pause_until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready` holds and nothing pauses the thread.

        Raises _AbandonedError if the thread is to end, or to abandon the collection.
        """
        self._is_paused = True
        self._changed.notify_all()
        if not self._changed.wait_for(partial(self._may_continue, ready), self._timeout_s):
            logger.warning(
                "%s: no result of the sampling thread was taken for %s s; the thread waits",
                *(self._sampler.name, self._timeout_s),
            )
            self._changed.wait_for(partial(self._may_continue, ready))
        self._is_paused = False
        if self._shutdown or self._is_abandoning:
            raise _AbandonedError

    def _may_continue(self, ready: Callable[[], bool]) -> bool:
        """Return whether the thread may continue, or has to end."""
        return self._shutdown or (not self._pauses and (self._is_abandoning or ready()))


# -------------------------------------------------------------------------------------------------
# A sampling thread whose data are dropped and whose episodes are counted.
#
# It serves learning from one batch (`fake_sampler`) while the environments are stepped with the
# resulting weights: metrics show how well the policy does, but these steps are not learnt from.


class BlackHoleSampler(AsyncSampler):
    """Keeps its first result; of later ones it keeps only the episodes."""

    _full = False

    def live_episodes(self) -> list[RolloutMetrics]:
        """Return the episodes that ended since the last call; starts the thread if there is none.

        Raises:
            BaseException: the exception of the thread.
            WorkerError: the thread is dead.
        """
        with self._changed:
            if self._thread is None:
                self._start()
            failed = self._results.pop() if self._results else None
            if isinstance(failed, BaseException):
                raise failed
            if not self.alive:
                raise self._death_error()
        return self.get_metrics()

    def discard(self) -> None:
        """Drop the result, the episodes and the running collection; call it while paused."""
        super().discard()
        self._full = False

    def _keep_result(self, collected: Collected) -> None:
        """Keep the first result, or the episodes of a later one."""
        if not self._full:
            super()._keep_result(collected)
            self._full = True
            return
        self._pause_until(lambda: True)
        self._episodes += collected.episodes
