"""Polls an environment and answers it, in the order of RLlib's sampler; errors name it.

After each poll, actions are sent for all episodes in it. An episode without an asking agent is sent
an empty dict, since an environment may wait for that before it makes its next step.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from trainables.envs.calls.faults import describe_fault
from trainables.envs.external.polled import ASYNC_RESET, Polled
from trainables.envs.kinds.agents import ALL
from trainables.errors import EnvError, TrainableError, shorten

#: Wait between two polls without events, seconds.
PAUSE_S = 0.001


class PolledEnv:
    """An environment that calls the trainer, as a sampler uses it: poll, then send actions.

    Args:
        base: object with `poll`, `send_actions` and possibly `try_reset`.
        name: name of the worker, for errors.
        timeout_s: longest time without an event, seconds.
    """

    def __init__(self, base: Any, name: str, timeout_s: float) -> None:
        self._base, self._timeout_s = base, timeout_s
        self._name = f"{name}: {type(base).__name__}"
        self._is_answered = True
        """True if actions were sent after the latest poll."""

    def poll(self) -> Polled:
        """Poll until some episode has an event, and return that poll.

        An event is an observation, an end or a lost episode. A poll without one is answered with no
        actions, and repeated after a pause. Raises EnvError if none comes within the time limit, or
        the environment fails.
        """
        until = time.monotonic() + self._timeout_s
        while True:
            given = self._call("poll")
            self._is_answered = False
            if not isinstance(given, tuple) or not 6 <= len(given) <= len(Polled._fields):
                names = ", ".join(Polled._fields[:6])
                raise EnvError(f"{self._name}.poll() returned {shorten(given)}; expected ({names})")
            polled = Polled(*given)
            if polled.observations or polled.lost or any(ended_episodes(polled)):
                return polled
            self.send((), {})
            if time.monotonic() > until:
                raise EnvError(
                    f"{self._name} has not called the trainer for {self._timeout_s:g} s "
                    "(external_timeout_s); check that somebody is playing, and that nothing "
                    "hangs in its thread"
                )
            time.sleep(PAUSE_S)

    def send(self, episodes: Iterable[Any], actions: Mapping[Any, Mapping[str, Any]]) -> None:
        """Send actions for the latest poll; do nothing without actions if some were sent already.

        Args:
            episodes: all episodes of the poll; those without an action are sent an empty dict.
            actions: episode → agent → action.
        """
        if actions or not self._is_answered:
            nobody: dict[Any, Mapping[str, Any]] = {env_id: {} for env_id in episodes}
            self._is_answered = True
            self._call("send_actions", {**nobody, **actions})

    def reset(self, env_id: Any) -> Any:
        """Begin the next episode under the id `env_id`; return agent → first observation.

        Returns `ASYNC_RESET` if they come in a later poll, None if the environment cannot be reset,
        and an exception if the reset fails. Raises EnvError for anything else.
        """
        if not callable(getattr(self._base, "try_reset", None)):
            return None
        try:
            given = self._base.try_reset(env_id)
        except TrainableError:
            raise
        except Exception as error:  # noqa: BLE001 an environment may raise anything
            return error
        if isinstance(given, tuple):
            given = given[0]
        if given is None or (isinstance(given, str) and given == ASYNC_RESET):
            return given
        if not isinstance(given, Mapping) or env_id not in given:
            raise EnvError(
                f"{self._name}.try_reset({shorten(env_id)}) returned {shorten(given)}; expected "
                "{episode: {agent: observation}}, ASYNC_RESET or None"
            )
        return given[env_id]

    def _call(self, method: str, *args: Any) -> Any:
        """Call a method of the environment; raises EnvError if it raises.

        Errors of `trainables` are raised as they are.
        """
        try:
            return getattr(self._base, method)(*args)
        except TrainableError:
            raise
        except Exception as error:
            raise EnvError(f"{self._name}.{method}() {describe_fault(error)}") from error


def ended_episodes(polled: Polled) -> list[Any]:
    """Return the ids of the episodes that a poll reports as over for all agents.

    An id may occur twice, for both kinds of ends.
    """
    both = polled.terminateds, polled.truncateds
    flags = [pair for one in both for pair in one.items()]
    return [env_id for env_id, one in flags if isinstance(one, Mapping) and one.get(ALL)]
