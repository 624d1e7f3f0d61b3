"""Videos of evaluations: episodes that have been played are played once more and drawn.

So nothing of an evaluation depends on whether it is recorded: an episode is decided by weights and
seed, and the environment that is drawn is another one. Callbacks, which may steer an episode, are
called in both. A file that is there is not made again.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainables.envs.make import make_raw_env
from trainables.envs.rendering import frames_per_second, picture, rendered
from trainables.envs.restarts import AnySeat
from trainables.evaluation_play import Plan, play_watched
from trainables.policies.player import Player
from trainables.video import SUFFIX, VideoFile


def evaluation_path(folder: str, iteration: int, index: int) -> Path:
    """The file of an episode; iteration 0 stands for the evaluation at the start."""
    return Path(folder) / f"evaluation-{iteration:06d}-episode-{index + 1}{SUFFIX}"


def record(player: Player, plan: Plan, seed: int, paths: Sequence[Path]) -> None:
    """Record the first episodes of one evaluation.

    Args:
        player: acts.
        plan: how the episodes were played.
        seed: of the evaluation.
        paths: of the files, one per episode.
    """
    env = make_raw_env(plan.environment, learning=False)
    fps = frames_per_second(env)
    env.close()
    drawn = replace(plan, environment=rendered(plan.environment), is_recorded=True)
    for index, path in enumerate(paths):
        if path.exists():
            continue
        recording = _Recording(path, fps)
        try:
            play_watched(player, drawn, seed, index, recording)
            recording.close()
        finally:
            recording.discard()


class _Recording:
    """Looks at the environment of one episode.

    Args:
        path: of the file.
        fps: pictures per second.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self._path = path
        self._fps = fps
        self._video = VideoFile(path, fps)

    def __call__(self, seat: AnySeat, length: int) -> None:
        if length == 0:
            self._video.discard()
            self._video = VideoFile(self._path, self._fps)
        seen = picture(seat.render(), "record_env")
        if seen is not None:
            self._video.add(seen)

    def close(self) -> None:
        """The episode has ended."""
        self._video.close()

    def discard(self) -> None:
        """Leave nothing unfinished behind."""
        self._video.discard()
