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
#: Seconds that `sample` waits for the thread's next result.
TIMEOUT_S = 600.0
#: Seconds that `close` waits for the thread's end.
STOP_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class _AbandonedError(Exception):
    """Raised inside the thread to leave the running `sample`, whose result is not wanted."""


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
        self._on_end: Callable[[], None] | None = None
        sampler.between_ticks = self._pause_if_wanted

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and not self._has_finished and self._thread.is_alive()

    def next(self) -> Collected:
        """Wait for a result; return the oldest, with all episodes that ended since the last call.

        Starts the thread if there is none. Raises the thread's exception, and WorkerError if it is
        dead or gave no result in time.
        """
        data = self.get_data()
        return data._replace(episodes=self.get_metrics())

    def get_data(self) -> Collected:
        """Wait for a result and return the oldest, without its episodes.

        Starts the thread if there is none.

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
        """Return the episodes that ended since the last call, without waiting for a result."""
        with self._changed:
            drained, self._episodes = self._episodes, []
        return drained

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the thread between two steps of the environments while the context is open.

        Blocks until it pauses, not at all if no thread runs. Contexts may be nested. Raises
        WorkerError if the thread did not finish its step in time.
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
                        f"step within {self._timeout_s} s; the environment hangs, or is too slow"
                    )
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()

    def discard(self) -> None:
        """Drop all results and the running `sample`; call it while the thread is paused.

        A thread that has died is started again by the next `get_data`.
        """
        with self._changed:
            self._results.clear()
            self._episodes.clear()
            self._is_abandoning = self.alive
            if not self.alive:
                self._thread = None

    def abandon(self, on_end: Callable[[], None]) -> None:
        """Tell the thread to end after its step of the environments, without waiting for it.

        At its end the thread calls `on_end`; if it is not alive, this method does.
        """
        with self._changed:
            self._shutdown = True
            if self.alive:
                self._on_end = on_end
            self._changed.notify_all()
            later = self._on_end is not None
        if not later:
            on_end()

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
                "%s: the sampling thread is still in a step of the environment after %s s; "
                "the thread is abandoned",
                *(self._sampler.name, STOP_TIMEOUT_S),
            )

    def _death_error(self) -> WorkerError:
        """Return an error which says that the sampling thread is dead, and how to start another."""
        return WorkerError(
            f"{self._sampler.name}: the sampling thread is dead; restore from a checkpoint to "
            "start another"
        )

    # ---- in the thread -----------------------------------------------------------------------

    def _start(self) -> None:
        """Start the sampling thread, a daemon."""
        self._has_finished = False
        name = f"sampler of {self._sampler.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Collect results in the thread until shutdown; an exception becomes the last result.

        At the end calls the function that `abandon` was given, if any.
        """
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
                on_end = self._on_end
            if on_end:
                on_end()

    def _collect(self) -> None:
        """Collect one result in the thread and queue it; nothing is queued if it is abandoned."""
        try:
            collected = self._sampler.sample(self._stream)
            with self._changed:
                self._keep_result(collected)
                self._changed.notify_all()
        except _AbandonedError:
            self._is_abandoning = False

    def _keep_result(self, collected: Collected) -> None:
        """Wait for room in the queue, then append a copy of the result.

        Its episodes are appended to their own list, which `get_metrics` empties. Raises
        _AbandonedError, without keeping anything, if the thread is to end or to drop the result.
        """
        self._pause_until(lambda: len(self._results) < RESULTS)
        # The sampler writes into the same arrays again.
        own = [fragment.copy() for fragment in collected.fragments]
        self._results.append(collected._replace(fragments=own, episodes=[]))
        self._episodes += collected.episodes

    def _pause_if_wanted(self) -> None:
        """Pause the thread between two steps if its owner has requested it.

        Raises _AbandonedError if the thread is to end, or to abandon the running `sample`.
        """
        if self._pauses or self._is_abandoning or self._shutdown:
            with self._changed:
                self._pause_until(lambda: True)

    def _pause_until(self, ready: Callable[[], bool]) -> None:
        """Block the thread until `ready()` is true and nobody pauses the thread.

        Logs a warning after the time limit and waits on. Raises _AbandonedError if the thread is to
        end, or to abandon the running `sample`.
        """
        self._is_paused = True
        self._changed.notify_all()
        if not self._changed.wait_for(partial(self._may_continue, ready), self._timeout_s):
            logger.warning(
                "%s: the trainer has taken no samples for %s s; the sampling thread waits",
                *(self._sampler.name, self._timeout_s),
            )
            self._changed.wait_for(partial(self._may_continue, ready))
        self._is_paused = False
        if self._shutdown or self._is_abandoning:
            raise _AbandonedError

    def _may_continue(self, ready: Callable[[], bool]) -> bool:
        """Return whether a waiting thread may continue: it is to end, or unpaused and `ready()`."""
        return self._shutdown or (not self._pauses and (self._is_abandoning or ready()))


# -------------------------------------------------------------------------------------------------
# A sampling thread whose data are dropped and whose episodes are counted.
#
# It serves learning from one batch (`fake_sampler`) while the environments are stepped with the
# resulting weights: metrics show how well the policy does, but these steps are not learnt from.


class BlackHoleSampler(AsyncSampler):
    """An `AsyncSampler` that keeps its first result, and of later ones only the episodes."""

    #: True once the first result was kept.
    _full = False

    def live_episodes(self) -> list[RolloutMetrics]:
        """Return the episodes that ended since the last call, without waiting.

        Starts the thread if there is none.

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
        """Drop the result, the episodes and the running `sample`; call it while paused.

        The next result is kept as the first one.
        """
        super().discard()
        self._full = False

    def _keep_result(self, collected: Collected) -> None:
        """Queue a copy of the first result, or keep only the episodes of a later one."""
        if not self._full:
            super()._keep_result(collected)
            self._full = True
            return
        self._pause_until(lambda: True)
        self._episodes += collected.episodes
