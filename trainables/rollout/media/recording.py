"""Videos of episodes, and pictures for a viewer: the settings, and the recorder.

The pictures show environment 0 of worker 0, one before each step and one after the last step of an
episode. Its episodes are numbered from 1 in the order of their beginning, also after restores; a
file is named after this number. The recorder has no state in checkpoints: the sampler stores the
number.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core.importing import load_callable
from trainables.core.settings import Section
from trainables.envs.calls.rendering import checked_picture
from trainables.envs.exactness.rendering import check_pictures
from trainables.envs.kinds.atari import LIFE_LOST
from trainables.envs.make import EnvironmentConfig
from trainables.envs.vector.base import Step, VectorEnv
from trainables.envs.vector.separate import SeparateVectorEnv
from trainables.errors import ConfigError, EnvError
from trainables.rollout.media.video import SUFFIX, VideoFile, is_installed

#: A window or callable that is called with each picture, an array (H, W, 3) of uint8.
Viewer: TypeAlias = Callable[[NDArray[np.uint8]], object]
#: Environment variable that names SDL's driver.
DRIVER = "SDL_VIDEODRIVER"
#: SDL's drivers without a screen.
INVISIBLE = ("offscreen", "dummy")


def find_viewer(render_env: bool | str) -> Viewer | None:
    """Return the viewer that the setting ``render_env`` names: a window, or a callable by its path.

    Returns None if the setting is False, or there is no screen for a window. Raises ConfigError if
    nothing that can be called is at the path.
    """
    if isinstance(render_env, str):
        return load_callable("render_env", render_env, "a callable that takes a picture")
    return _Window() if render_env and _has_screen() else None


def _has_screen() -> bool:
    """Return whether pygame can show a window; starts pygame's display.

    Drivers without a screen count only if ``SDL_VIDEODRIVER`` names them.
    """
    try:
        import pygame

        pygame.display.init()
    except Exception:  # noqa: BLE001 without pygame, or with one that cannot draw, there is no window
        return False
    driver = pygame.display.get_driver()
    return driver not in INVISIBLE or os.environ.get(DRIVER) == driver


class _Window:
    """A viewer that shows each picture in a window of the first picture's size."""

    def __init__(self) -> None:
        self._surface: Any = None

    def __call__(self, picture: NDArray[np.uint8]) -> None:
        """Show a picture (H, W, 3); the first one opens the window."""
        import pygame

        if self._surface is None:
            height, width, _ = picture.shape
            self._surface = pygame.display.set_mode((width, height))
        pygame.event.pump()
        drawn = pygame.surfarray.make_surface(np.swapaxes(picture, 0, 1))
        self._surface.blit(drawn, (0, 0))
        pygame.display.flip()


logger = logging.getLogger(__name__)
FOLDER = "videos"
"""Subfolder of the trial's folder that has the videos."""
NAME = "rollout-episode-{}" + SUFFIX
"""Format of a file's name; its episode's number, with six digits, is filled in."""


class RenderingConfig(Section):
    """Settings of viewers and videos."""

    record_env: bool | Literal["evaluation", "rollout"] = Field(
        default=False,
        description="Record episodes as MP4 files in the trial's folder videos: those of each "
        "evaluation (evaluation), those of the first worker's first environment while sampling "
        "(rollout), or both (true). Needs pip install 'sweep-rl[video]'.",
    )
    record_every: int = Field(
        default=100,
        gt=0,
        description="While sampling: record every n-th episode, counted from the first one that "
        "is seen from its beginning.",
    )
    record_episodes: int = Field(
        default=1, gt=0, description="Maximum number of recorded episodes per evaluation."
    )
    render_env: bool | str = Field(
        default=False,
        description="Show the first worker's first environment while sampling: true, in a window "
        "(needs pygame and a screen); package.module:Name, a callable that gets each picture as "
        "an array (H, W, 3) of uint8.",
    )

    @property
    def records_rollout(self) -> bool:
        """True if episodes are recorded while sampling."""
        return self.record_env in (True, "rollout")

    @property
    def records_evaluation(self) -> bool:
        """True if evaluations are recorded."""
        return self.record_env in (True, "evaluation")


@dataclass(frozen=True)
class RecordingPlan:
    """Settings for the pictures of a worker; it is sent to child processes."""

    config: RenderingConfig
    """Settings of viewers and videos."""
    folder: str
    """Folder of the videos."""
    fps: float
    """Frames per second of the videos."""

    def make_recorder(self) -> "VideoRecorder | None":
        """Return the recorder of pictures; None if there is neither a viewer nor a video to make.

        Logs a warning if a window is requested but cannot be opened. Raises ConfigError if nothing
        that can be called is at the viewer's path.
        """
        viewer = find_viewer(self.config.render_env)
        if self.config.render_env and viewer is None:
            logger.warning(
                "render_env: no window can be opened (it needs pygame and a screen), so nothing is "
                "shown. render_env: package.module:Name passes pictures to a callable"
            )
        return VideoRecorder(self, viewer) if viewer or self.config.records_rollout else None


def check_rendering(environment: EnvironmentConfig, config: RenderingConfig) -> float:
    """Return the frames per second of a rollout's video; 0 if no pictures are taken while sampling.

    Makes one environment to draw it, if such pictures are taken. Raises ConfigError if PyAV is
    missing for a video, the viewer cannot be called, or the environment cannot be drawn or is
    stepped as one native object.
    """
    if config.record_env and not is_installed():
        problem = "a video needs PyAV, which is not installed"
        hint = "install it: pip install 'sweep-rl[video]'"
        raise ConfigError("record_env", config.record_env, hint=hint, problem=problem)
    if isinstance(config.render_env, str):
        find_viewer(config.render_env)
    key = "record_env" if config.records_rollout else "render_env"
    value = getattr(config, key)
    if not value or value == "evaluation":
        return 0.0
    if environment.is_native:
        other, allowed = "native_vector_env: true", "false or evaluation"
        why = "its next episode begins before the last picture of an episode can be taken"
        undo = "set native_vector_env to false"
        raise ConfigError.of_conflict(key, value, other, allowed, why, undo)
    return check_pictures(environment, key, value)


class VideoRecorder:
    """Takes the pictures of one environment, for videos and for a viewer, if any."""

    def __init__(self, plan: RecordingPlan, viewer: Viewer | None) -> None:
        self._render: Callable[[], Any] = lambda: None
        self._plan = plan
        self._viewer = viewer
        self._folder = Path(plan.folder)
        self._key = "record_env" if plan.config.records_rollout else "render_env"
        self._video: VideoFile | None = None
        self._number = 0
        self._recorded_block = -1
        """Number of the last block of `record_every` episodes that has its video; -1 if unknown."""
        self._seconds = 0.0

    def attach(self, envs: VectorEnv) -> None:
        """Take pictures of environment 0 of `envs` from now on.

        Does nothing if the environments are stepped as one native object. Sets
        `envs.before_restart`, so that an episode's last picture is taken before the reset; the
        function that was there is called afterwards.
        """
        if not isinstance(envs, SeparateVectorEnv):
            return  # `check_rendering` refuses them
        self._render = envs.render
        others = envs.before_restart

        def before_restart(step: Step) -> None:
            """Record the ends of episodes, then call the function that was set before."""
            self._before_restart(step)
            if others:
                others(step)

        envs.before_restart = before_restart

    def begin(self, number: int) -> None:
        """Begin the episode `number` (from 1) with its first picture; discard an unfinished video.

        If sampling is recorded, the episode gets a video unless its block of ``record_every``
        episodes has one already.
        """
        self.discard()
        self._number = number
        if self._plan.config.records_rollout and not self._has_video(number):
            self._video = VideoFile(self._folder / NAME.format(f"{number:06d}"), self._plan.fps)
        self._take_picture()

    def _before_restart(self, step: Step) -> None:
        """Take the last picture of an ended episode, and close its video; discard a faulty one.

        If the game only lost a life (Atari), its video continues.
        """
        if 0 in step.faults:
            self.discard()
        elif step.terminated[0] or step.truncated[0]:
            self._take_picture()
            if self._video and not step.infos.get(0, {}).get(LIFE_LOST):
                self._finish_video()

    def after_step(self, has_ended: bool) -> float:
        """Take the picture after a step; return the seconds spent on pictures since the last call.

        If `has_ended`, the environment has begun its next episode, so the recorder begins that,
        too; a video that is still open, as at a soft horizon, gets its last picture and is
        completed before. No picture is taken without a video and a viewer. Raises ConfigError if
        the environment returns something else than a picture, EnvError if drawing or showing
        failed.
        """
        if has_ended:
            if self._video:  # a soft horizon resets nothing, so `_before_restart` was not called
                self._take_picture()
                self._finish_video()
            self.begin(self._number + 1)
        else:
            self._take_picture()
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def resume(self, number: int, length: int) -> None:
        """Continue in episode `number`, which a checkpoint restored after `length` steps.

        An episode restored in its middle gets no video, since its earlier pictures are missing.
        """
        self._recorded_block = -1  # the restored episode may be in an earlier block
        if length == 0:
            self.begin(number)
        else:
            self.discard()
            self._number = number

    def discard(self) -> None:
        """Delete the unfinished video, if there is one."""
        if self._video:
            self._video.discard()
            self._video = None

    def _has_video(self, number: int) -> bool:
        """Return whether a file exists for the block of ``record_every`` episodes with `number`."""
        every = self._plan.config.record_every
        stretch = (number - 1) // every
        if stretch != self._recorded_block:
            for path in self._folder.glob(NAME.format("*")):
                recorded = path.stem.rpartition("-")[2]  # of a copy that a person made it has more
                if recorded.isdecimal() and (int(recorded) - 1) // every == stretch:
                    self._recorded_block = stretch
        return stretch == self._recorded_block

    def _finish_video(self) -> None:
        """Complete the video's file, and note that its block of episodes has a video."""
        assert self._video is not None  # noqa: S101 asked by the callers
        self._video.close()
        self._video = None
        self._recorded_block = (self._number - 1) // self._plan.config.record_every

    def _take_picture(self) -> None:
        """Render environment 0 for the open video and the viewer; do nothing if there is neither.

        A render that returns None is skipped. Adds the time to the seconds that `after_step`
        returns. Raises ConfigError if the environment returns anything else than a picture,
        EnvError if drawing or showing failed.
        """
        if not (self._video or self._viewer):
            return
        began = time.perf_counter()
        try:
            seen = checked_picture(self._render(), self._key)
            if seen is not None and self._video:
                self._video.add(seen)
            if seen is not None and self._viewer:
                self._viewer(seen)
        except ConfigError:
            raise
        except Exception as error:
            raise EnvError(
                f"worker 0, environment 0: a picture could not be made or shown: "
                f"{type(error).__name__}: {error}; set {self._key} to false to continue without "
                "pictures"
            ) from error
        self._seconds += time.perf_counter() - began
