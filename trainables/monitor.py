"""Every finished episode as a line of JSON in the trial's folder, each exactly once.

``episodes.jsonl`` is written by the trainer as samples arrive, in worker order; no environment is
wrapped for it, so it changes neither speed nor exactness. A checkpoint holds how long the file was:
a trial that is restored cuts off what came after and writes it again.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from trainables import disk
from trainables.rollout.metrics import RolloutMetrics
from trainables.rollout.sample import Sample
from trainables.settings import Section

FILE = "episodes.jsonl"


class RecordingConfig(Section):
    """Statistics of episodes in a file."""

    monitor: bool = Field(
        default=False,
        description="Write every finished episode as a line of episodes.jsonl in the trial's "
        "folder.",
    )


class EpisodeRecord:
    """Appends to ``episodes.jsonl``; does nothing unless it is switched on.

    Args:
        config: whether.
        folder: gives the trial's folder; called when there is something to write.
    """

    def __init__(self, config: RecordingConfig, folder: Callable[[], str]) -> None:
        self._on = config.monitor
        self._folder = folder
        self._episodes = 0
        self._bytes = 0

    def add(self, samples: Sequence[Sample]) -> None:
        """Write the episodes that ended in these samples."""
        if not self._on:
            return
        lines = [self._line(one.index, episode) for one in samples for episode in one.episodes]
        if not lines:
            return
        text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        path = Path(self._folder()) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(disk.open_file(path, appending), "ab") as file:
            file.truncate(min(self._bytes, file.tell()))
            file.write(text)
            self._bytes = file.tell()

    def get_state(self) -> dict[str, Any]:
        """Entry ``recorded``, if it is switched on: its ``episodes`` and ``bytes``."""
        if not self._on:
            return {}
        return {"recorded": {"episodes": self._episodes, "bytes": self._bytes}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave, from among other entries.

        What was written since is cut off by the next line.
        """
        if self._on:
            recorded = state.get("recorded", {"episodes": 0, "bytes": 0})
            self._episodes, self._bytes = int(recorded["episodes"]), int(recorded["bytes"])

    def _line(self, worker: int, episode: RolloutMetrics) -> dict[str, Any]:
        self._episodes += 1
        return {
            "episode": self._episodes,
            "worker": worker,
            "total_reward": episode.total_reward,
            "length": episode.length,
            "faulty": episode.faulty,
            "custom_metrics": dict(episode.custom_metrics or {}),
        }
