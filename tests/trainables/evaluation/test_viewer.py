import logging
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import drawing
from tests.support.trainers import PLAIN, run
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.rollout.media.recording import find_viewer
from trainables.trainable import TrialContext

HERE = "tests.support.drawing"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    drawing.SEEN.clear()
    yield
    drawing.SEEN.clear()


def make(**config: Any) -> PPO:
    shown = {"env": f"{HERE}:Drawn", "env_level": "C", "render_env": f"{HERE}:look"}
    small = {"num_envs_per_worker": 1, "rollout_fragment_length": 16, "train_batch_size": 16}
    return PPO({**PLAIN, **small, **shown, **config}, TrialContext(seed=7))


def test_E15_a_viewer_is_shown_every_observation() -> None:
    trainer = make()
    run(trainer, 1)
    trainer.stop()
    ages = [int(picture.mean()) // 20 for picture in drawing.SEEN]
    assert ages[:9] == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert len(ages) == 1 + 16 + 3, "the first, one a step, the last of each episode"
    assert {(picture.shape, str(picture.dtype)) for picture in drawing.SEEN} == {
        ((15, 21, 3), "uint8")
    }


@pytest.mark.parametrize("returns", [True, False, None])
def test_E15_an_environment_may_draw_into_a_window_of_its_own(returns: bool | None) -> None:
    trainer = make(env_config={"returns": returns})
    run(trainer, 1)
    trainer.stop()
    assert drawing.SEEN == []


@pytest.mark.parametrize("returns", [np.zeros((3, 3), np.uint8), np.zeros((3, 3, 3)), "text", 1])
def test_E15_anything_else_is_a_ValueError_that_lists_what_is_supported(returns: Any) -> None:
    with pytest.raises(ValueError, match=r"render_env: .*True, False or None") as seen:
        make(env_config={"returns": returns})
    assert "(height, width, 3)" in str(seen.value)


def test_E15_without_a_window_it_is_said_once_and_nothing_is_drawn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with caplog.at_level(logging.WARNING, "trainables"):
        trainer = make(render_env=True)
        result = trainer.train()
    trainer.stop()
    told = [one.getMessage() for one in caplog.records if "render_env" in one.getMessage()]
    assert len(told) == 1
    assert "mean_env_render_ms" not in result["sampler_perf"]


def test_E15_the_viewer_of_true_is_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    pygame.display.quit()
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    show = find_viewer(True)
    assert show is not None
    picture = np.zeros((20, 30, 3), np.uint8)
    picture[4, 7] = (1, 2, 3)
    show(picture)
    assert pygame.display.get_surface().get_size() == (30, 20)
    assert tuple(pygame.display.get_surface().get_at((7, 4)))[:3] == (1, 2, 3)
    pygame.display.quit()


def test_E15_a_viewer_that_does_not_exist_is_a_setting_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="render_env"):
        make(render_env=f"{HERE}:looks")
