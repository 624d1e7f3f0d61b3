"""A sampling thread whose data are dropped and whose episodes are told.

For learning from one batch (`fake_sampler`) while the environments are stepped with the weights
that come of it: the metrics say how well the policy does, nothing of it is learnt from.
"""

from trainables.rollout.async_sampler import AsyncSampler
from trainables.rollout.metrics import RolloutMetrics
from trainables.rollout.sampler import Collected


class BlackHoleSampler(AsyncSampler):
    """Gives one result, which it keeps; of all that comes after it only the episodes."""

    _full = False

    def live_episodes(self) -> list[RolloutMetrics]:
        """Those that have ended since the last call; the thread is started if there is none.

        Raises:
            BaseException: what the thread raised.
            WorkerError: the thread is dead.
        """
        with self._changed:
            if self._thread is None:
                self._start()
            failed = self._results.pop() if self._results else None
            if isinstance(failed, BaseException):
                raise failed
            if not self.alive:
                raise self._dead()
        return self.get_metrics()

    def discard(self) -> None:
        """Forget the result and the episodes, and what is being collected; call it while paused."""
        super().discard()
        self._full = False

    def _keep(self, collected: Collected) -> None:
        if not self._full:
            super()._keep(collected)
            self._full = True
            return
        self._rest_until(lambda: True)
        self._episodes += collected.episodes
