import sys
from pathlib import Path
from typing import Any

import av
import gymnasium
import numpy as np
import pytest

from tests.support import drawing
from tests.support.trainers import PLAIN, differences, final_state, run
from tests.trainables.trainer.test_monitor import lines
from trainables.algorithms.ppo import PPO
from trainables.envs.state.mujoco import why_no_picture
from trainables.errors import ConfigError
from trainables.rollout.media.recording import (
    FOLDER,
    RecordingPlan,
    RenderingConfig,
    VideoRecorder,
)
from trainables.rollout.media.video import VideoFile
from trainables.trainable import TrialContext

HERE = "tests.support.drawing"
DRAWN: dict[str, Any] = {
    **PLAIN,
    "env": f"{HERE}:Drawn",
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 16,
    "train_batch_size": 32,
    "record_env": "rollout",
    "record_every": 1,
    "env_level": "C",
}


def make(folder: Path, **config: Any) -> PPO:
    return PPO({**DRAWN, **config}, TrialContext(seed=7, logdir=folder))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / FOLDER).iterdir())


def frames(path: Path) -> list[Any]:
    with av.open(str(path)) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def ages(path: Path) -> list[int]:
    """How old the episode is in each picture of a `Drawn`."""
    return [round(float(frame.mean()) / 20) for frame in frames(path)]


def without_canvas(state: dict[str, Any]) -> dict[str, Any]:
    """Where environments are in it, without what CartPole draws with: None in one never drawn."""
    environments = state["trainable"]["data"]["workers"][0]["environments"]
    for sub_env in environments["units"] if environments else ():
        for layer in sub_env["layers"]:
            layer.pop("screen", None), layer.pop("clock", None)
    return state


# ---- what is recorded ------------------------------------------------------------------------


def test_W8_every_observation_of_an_episode_is_a_picture_of_its_video(tmp_path: Path) -> None:
    trainer = make(tmp_path, record_every=2, monitor=True)
    run(trainer, 1)
    trainer.stop()
    recorded = names(tmp_path)
    assert recorded == [f"rollout-episode-00000{i}.mp4" for i in (1, 3, 5)]
    for name in recorded:
        assert ages(tmp_path / FOLDER / name) == [0, 1, 2, 3, 4, 5]


def test_W8_evaluations_are_recorded_as_they_were_played(tmp_path: Path) -> None:
    of_cartpole = {"env": "CartPole-v1", "record_env": "evaluation", "env_level": "auto"}
    evaluated = {"evaluation_interval": 2, "evaluation_num_episodes": 1, "record_episodes": 3}
    trainer = make(tmp_path, **of_cartpole, **evaluated)
    results = run(trainer, 2)
    trainer.stop()
    told = [results[0]["evaluation_at_start"], results[1]["evaluation"]]
    names_of = ["evaluation-000000-episode-1.mp4", "evaluation-000002-episode-1.mp4"]
    assert names(tmp_path) == names_of
    for one, name in zip(told, names_of, strict=True):
        seen = frames(tmp_path / FOLDER / name)
        assert len(seen) == one["episode_len_mean"] + 1
        assert seen[0].shape == (400, 600, 3)
        assert seen[0].mean() > 200 > seen[0].min(), "a dark cart on a white ground"


def test_W8_a_copy_that_a_person_made_of_a_video_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "rollout-episode-000001 (copy).mp4").touch()
    config = RenderingConfig(record_env="rollout", record_every=1)
    VideoRecorder(RecordingPlan(config, str(tmp_path), 30.0), None).begin(1)


def test_W8_several_agents_are_recorded_as_one_is(tmp_path: Path) -> None:
    """And drawing changes nothing of what they learn."""
    agents = {"env": "tests.support.agents:Drawn", "multiagent": {"policies": {"shared": None}}}
    evaluated = {"record_env": True, "evaluation_interval": 1, "evaluation_num_episodes": 1}
    trainer = make(tmp_path, **agents, **evaluated, record_every=3)
    plain = make(tmp_path / "plain", **agents, **{**evaluated, "record_env": False})
    compared = ("learner", "hist_stats", "evaluation")
    both = [[{key: one[key] for key in compared} for one in run(t, 2)] for t in (trainer, plain)]
    trainer.stop()
    plain.stop()
    assert both[0] == both[1]
    assert not (tmp_path / "plain" / FOLDER).exists()
    recorded = names(tmp_path)
    assert recorded == [
        *(f"evaluation-00000{i}-episode-1.mp4" for i in (0, 1, 2)),
        *(f"rollout-episode-00000{i}.mp4" for i in (1, 4, 7)),
    ]
    for name in recorded:
        assert ages(tmp_path / FOLDER / name) == list(range(9))


def test_W8_an_evaluation_that_callbacks_steer_is_recorded_as_it_was_played(
    tmp_path: Path,
) -> None:
    played: list[tuple[str, bool]] = []

    def lengthens(told: dict[str, Any]) -> None:
        if told["worker"].in_evaluation:
            told["worker"].envs.sub_envs[0].unwrapped.length = 8
            played.append((told["episode"].episode_id, told["worker"].is_recorded))

    evaluated = {"record_env": "evaluation", "evaluation_interval": 1, "train_batch_size": 16}
    told = {"on_episode_created": lengthens}
    trainer = make(tmp_path, **evaluated, evaluation_num_episodes=1, callbacks=told)
    (result,) = run(trainer, 1)
    trainer.stop()
    assert result["evaluation"]["episode_len_mean"] == 8
    assert ages(tmp_path / FOLDER / "evaluation-000001-episode-1.mp4") == list(range(9))
    assert played == [("evaluation-0", False), ("evaluation-0", True)] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "level"),
    [
        ({"env": "CartPole-v1"}, "A"),
        ({"env": "LunarLander-v3", "train_batch_size": 160}, "B"),
        pytest.param({"env": f"{HERE}:DrawsByGlobalChance"}, "C", marks=pytest.mark.proof),
        pytest.param(
            {"remote_worker_envs": True, "num_envs_per_worker": 2}, "C", marks=pytest.mark.proof
        ),
        ({"num_workers": 1, "batch_mode": "complete_episodes"}, "C"),
        ({"callbacks": "tests.support.callbacks:Diary"}, "C"),
    ],
    ids=["A", "B", "global streams", "remote", "a child, whole episodes", "callbacks"],
)
def test_W8_recording_changes_no_bit_of_the_training(
    tmp_path: Path, config: dict[str, Any], level: str
) -> None:
    told = []
    for record in (True, False):
        exactly = {"env_level": level, "evaluation_interval": 2, "evaluation_num_episodes": 1}
        trainer = make(tmp_path, **config, **exactly, record_env=record)
        results = run(trainer, 2)
        for one in results:
            del one["config"]
        told.append((results, without_canvas(final_state(trainer))))
        trainer.stop()
    assert differences(told[0], told[1]) == []
    assert {name.partition("-")[0] for name in names(tmp_path)} == {"evaluation", "rollout"}


@pytest.mark.slow
@pytest.mark.parametrize("level", ["A", "B", "C"])
def test_W8_a_restored_trial_goes_on_with_its_videos(tmp_path: Path, level: str) -> None:
    config: dict[str, Any] = {
        "env": "CartPole-v1",
        "env_level": level,
        "record_every": 2,
        "monitor": True,
    }
    config |= {"train_batch_size": 80}
    trainer = make(tmp_path, **config)
    run(trainer, 2)
    saved = trainer.get_state()
    run(trainer, 2)
    trainer.stop()
    there = {path: path.read_bytes() for path in (tmp_path / FOLDER).iterdir()}
    again = make(tmp_path, **config)
    again.set_state(saved)
    run(again, 4)
    again.stop()
    assert all(path.read_bytes() == content for path, content in there.items())
    recorded = [int(name[-10:-4]) for name in names(tmp_path)]
    lengths = {one["episode"]: one["length"] for one in lines(tmp_path)}
    stretches = [(number - 1) // 2 for number in recorded]
    assert stretches == sorted(set(stretches)), "one of two"
    assert len(recorded) > len(there)
    assert max(lengths) - recorded[-1] <= 2, "up to the end"
    if level != "C":  # else the videos that were there show episodes that never were
        for number in recorded:
            pictures = frames(tmp_path / FOLDER / f"rollout-episode-{number:06d}.mp4")
            assert len(pictures) == lengths[number] + 1


def test_W8_a_soft_horizon_ends_a_video(tmp_path: Path) -> None:
    trainer = make(tmp_path, horizon=3, soft_horizon=True, env_config={"length": 6})
    run(trainer, 1)
    trainer.stop()
    first, second = (tmp_path / FOLDER / name for name in names(tmp_path)[:2])
    assert ages(first) == [0, 1, 2, 3]
    assert ages(second) == [3, 4, 5, 6]


def test_W8_a_game_is_one_video_whatever_lives_it_has(tmp_path: Path) -> None:
    trainer = make(tmp_path, env=f"{HERE}:LosesLives", env_config={"length": 2})
    run(trainer, 1)
    trainer.stop()
    second = ages(tmp_path / FOLDER / names(tmp_path)[1])
    assert second == [0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_W8_a_faulty_episode_leaves_no_video(tmp_path: Path) -> None:
    drawing.Fails.left = 2  # the first time while it is looked whether drawing changes it
    trainer = make(tmp_path, env=f"{HERE}:Fails", restart_failed_sub_environments=True)
    run(trainer, 1)
    trainer.stop()
    assert names(tmp_path)[0] == "rollout-episode-000002.mp4"
    assert all(ages(tmp_path / FOLDER / name) == [0, 1, 2, 3, 4, 5] for name in names(tmp_path))


def test_W8_an_evaluation_whose_environment_fails_is_recorded_from_its_new_beginning(
    tmp_path: Path,
) -> None:
    drawing.Fails.left = 2
    evaluated = {"evaluation_interval": 1, "evaluation_num_episodes": 1}
    restarts = {"record_env": "evaluation", "restart_failed_sub_environments": True}
    trainer = make(tmp_path, env=f"{HERE}:Fails", **evaluated, **restarts)
    run(trainer, 1)
    trainer.stop()
    assert drawing.Fails.left == 0
    assert ages(tmp_path / FOLDER / names(tmp_path)[0]) == [0, 1, 2, 3, 4, 5]


def test_nothing_is_drawn_unless_asked_for(tmp_path: Path) -> None:
    trainer = make(tmp_path, record_env=False, env_config={"returns": "refused if anybody asks"})
    result = trainer.train()
    trainer.stop()
    assert "mean_env_render_ms" not in result["sampler_perf"]
    assert list(tmp_path.iterdir()) == []


def test_E1_the_time_of_pictures_is_told(tmp_path: Path) -> None:
    for coefficient in (None, 0.5):
        trainer = make(tmp_path, sampler_perf_stats_ema_coef=coefficient)
        assert trainer.train()["sampler_perf"]["mean_env_render_ms"] > 0
        trainer.stop()


# ---- what cannot be recorded -----------------------------------------------------------------


def refusal(tmp_path: Path, **config: Any) -> str:
    with pytest.raises(ConfigError) as seen:
        make(tmp_path, **config)
    with pytest.raises(ConfigError):
        PPO.check_config({**DRAWN, **config})
    return str(seen.value)


def test_W8_an_environment_without_pictures_is_refused_with_its_render_modes(
    tmp_path: Path,
) -> None:
    told = refusal(tmp_path, env=f"{HERE}:Unseen")
    assert "record_env: rollout" in told
    assert "rgb_array" in told
    assert "render modes ansi, human" in told
    told = refusal(tmp_path, env="tests.support.environments:Counting", record_env=True)
    assert "no render modes" in told
    assert "returned None" in refusal(tmp_path, env_config={"returns": None})


def test_W8_an_environment_that_drawing_changes_is_refused(tmp_path: Path) -> None:
    assert "while it was drawn" in refusal(tmp_path, env=f"{HERE}:Shy")


def test_W8_other_render_modes_evaluations_and_lanes_that_do_not_fit_are_refused(
    tmp_path: Path,
) -> None:
    told = refusal(tmp_path, env_config={"render_mode": "human"})
    assert "env_config.render_mode: human" in told
    assert "evaluation_interval" in refusal(tmp_path, record_env="evaluation")
    cartpole = {"env": "CartPole-v1", "env_level": "auto", "native_vector_env": True}
    assert "native_vector_env" in refusal(tmp_path, **cartpole)


def test_W8_a_missing_library_or_screen_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    assert "MUJOCO_GL=egl" in refusal(tmp_path, env="InvertedPendulum-v5")
    env = gymnasium.make("InvertedPendulum-v5")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert why_no_picture(env) == ""
    env.close()
    monkeypatch.setitem(sys.modules, "av", None)
    assert "pip install 'sweep-rl[video]'" in refusal(tmp_path)


# ---- the file --------------------------------------------------------------------------------


def test_W8_a_video_is_whole_or_absent_and_grows_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "below" / "one.mp4"
    video = VideoFile(path, 30)
    noise = np.random.Generator(np.random.PCG64(1)).integers(0, 256, (80, 120, 161, 3), np.uint8)
    for picture in noise:
        video.add(picture)
    part = path.with_name("one.mp4.part")
    assert not path.exists()
    assert part.stat().st_size > 100_000, "frames do not wait in memory"
    video.close()
    video.discard()
    assert [one.name for one in path.parent.iterdir()] == ["one.mp4"]
    seen = frames(path)
    assert (len(seen), seen[0].shape) == (80, (120, 162, 3)), "sides are made even"


def test_W8_an_unfinished_video_leaves_nothing(tmp_path: Path) -> None:
    video = VideoFile(tmp_path / "one.mp4", 30)
    video.close()  # without a picture
    video.add(np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(ValueError, match="must have the same shape"):
        video.add(np.zeros((6, 4, 3), np.uint8))
    video.discard()
    assert list(tmp_path.iterdir()) == []
