"""Rows are chained where the columns of a file say that they follow each other."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.envs.exactness import measuring
from trainables.envs.make import EnvironmentConfig
from trainables.errors import StoredDataError
from trainables.offline.batches import Columns
from trainables.offline.estimators import read_episodes
from trainables.offline.reader import JsonReader, Rows
from trainables.offline.sources import convert, files_reader
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer


class Line(gymnasium.Env[Any, Any]):
    """Has spaces, and cannot begin an episode."""

    def __init__(self, **_: Any) -> None:
        self.observation_space = spaces.Box(-100, 100, (1,), np.float32)
        self.action_space = spaces.Discrete(2)


ENV = f"{__name__}:Line"


def line(*steps: tuple[float, float], drop: str = "", **columns: Any) -> dict[str, Any]:
    """Transitions (observation, next one), of which none ends an episode."""
    made: dict[str, Any] = {
        "type": "SampleBatch",
        "obs": [[now] for now, _ in steps],
        "new_obs": [[after] for _, after in steps],
        "actions": [0] * len(steps),
        "rewards": [float(now) for now, _ in steps],
        "terminateds": [False] * len(steps),
        "action_prob": [0.5] * len(steps),
        **columns,
    }
    return {name: column for name, column in made.items() if name not in drop.split()}


def written(folder: Path, *lines: dict[str, Any]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.json").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return str(folder)


def rows_of(folder: Path, *lines: dict[str, Any], is_multi_agent: bool = False) -> Columns:
    reader = JsonReader(
        [Path(written(folder, *lines)) / "a.json"],
        Rows(measuring.inspect(EnvironmentConfig(env=ENV)).spaces, is_multi_agent),
    )
    return reader.next()


def trainer_of(kind: type[Trainer], given: str, **config: Any) -> Any:
    more: dict[str, Any] = {"learning_starts": 1000} if kind is DQN else {"input_evaluation": []}
    base = {"env": ENV, "input": given, "train_batch_size": 3, "gamma": 0.5}
    return kind({**base, **more, **config}, TrialContext(seed=1))


APART = ((10, 11), (20, 21), (30, 31))
ALONG = ((10, 11), (11, 12), (12, 13))


@pytest.mark.parametrize("more", [{}, {"unroll_id": [1, 2, 3]}, {"t": [4, 5, 6]}])
def test_rows_of_several_episodes_without_their_numbers_are_not_chained(
    more: dict[str, Any], tmp_path: Path
) -> None:
    given = written(tmp_path, line(*APART, **more))
    trainer = trainer_of(DQN, given, n_step=3, postprocess_inputs=True)
    trainer.train()
    found = trainer.replay._rows[: len(trainer.replay)][:3]
    trainer.stop()
    assert sorted(found["rewards"].tolist()) == [10.0, 20.0, 30.0]
    assert sorted(found["new_obs"][:, 0].tolist()) == [11.0, 21.0, 31.0]


def test_rows_that_lead_to_each_other_are_chained(tmp_path: Path) -> None:
    given = written(tmp_path, line(*ALONG))
    trainer = trainer_of(DQN, given, n_step=3, postprocess_inputs=True)
    trainer.train()
    found = trainer.replay._rows[: len(trainer.replay)][:3]
    trainer.stop()
    assert sorted(found["rewards"].tolist()) == [12.0, 17.0, 18.5]
    assert found["new_obs"][:, 0].tolist() == [13.0] * 3


@pytest.mark.parametrize(
    ("columns", "follows"),
    [
        ({"t": [0, 1, 2]}, [True, True]),
        ({"t": [0, 1, 7]}, [True, False]),
        ({"eps_id": [5, 5, 5]}, [True, True]),
        ({"eps_id": [5, 6, 6]}, [False, True]),
        ({"unroll_id": [1, 1, 1]}, [True, True]),
        ({"unroll_id": [1, 2, 2]}, [False, True]),
        ({"eps_id": [5] * 3, "agent_index": [0, 1, 1]}, [False, True]),
        ({"t": [0, 1, 2], "unroll_id": [1, 2, 2]}, [False, True]),
        # An episode that a worker cut into several pieces is certain by all three.
        (
            {"eps_id": [5] * 3, "t": [4, 5, 6], "agent_index": [0] * 3, "unroll_id": [1, 2, 2]},
            [True, True],
        ),
        ({"agent_index": [0] * 3}, None),
        ({}, None),
    ],
)
def test_the_next_row_is_what_a_row_leads_to_only_where_a_column_says_so(
    columns: dict[str, Any], follows: list[bool] | None, tmp_path: Path
) -> None:
    """The last row leads nowhere that is known; None: no column says anything."""
    found = rows_of(tmp_path, line(*ALONG, drop="new_obs", **columns))
    if follows is None:
        assert "new_obs" not in found
        assert found["obs"][:, 0].tolist() == [10, 11, 12]
        assert not found["has_next"].any()
        return
    kept = [now for now, is_followed in zip((10, 11), follows, strict=True) if is_followed]
    assert found["obs"][:, 0].tolist() == kept
    assert found["new_obs"][:, 0].tolist() == [now + 1 for now in kept]


def test_what_an_agent_does_now_and_then_is_followed_by_what_it_does_next(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"t": [1, 3, 7], "unroll_id": [2] * 3, "eps_id": [0] * 3}
    columns |= {"agent_index": [1] * 3}
    found = rows_of(tmp_path, line(*ALONG, **columns), is_multi_agent=True)
    assert found["has_next"].tolist() == [True, True, False]
    assert not rows_of(tmp_path, line(*ALONG, **columns))["has_next"].any()


@pytest.mark.parametrize("n_step", [1, 3])
def test_where_no_column_says_what_follows_nothing_is_learnt_of_it(
    n_step: int, tmp_path: Path
) -> None:
    """Imitation needs no next observation; a value does."""
    given = written(tmp_path, line(*ALONG, drop="new_obs"))
    trainer = trainer_of(DQN, given, n_step=n_step, postprocess_inputs=n_step > 1)
    said = "the column new_obs is missing, and the policy learns from it; "
    said += "write this column, or t, eps_id or unroll_id"
    with pytest.raises(StoredDataError, match=said) as error:
        trainer.train()
    trainer.stop()
    assert "\n" not in str(error.value)
    clone = trainer_of(BC, given)
    assert clone.train()["timesteps_total"] % 3 == 0
    clone.stop()


def lengths(folder: Path, *lines: dict[str, Any]) -> list[int]:
    """Steps of the whole episodes that estimates are made of."""
    reader = JsonReader(
        [Path(written(folder, *lines)) / "a.json"],
        Rows(measuring.inspect(EnvironmentConfig(env=ENV)).spaces),
    )
    found = read_episodes(reader, 100)
    return [] if found is None else found.valid.sum(axis=1).tolist()


ENDS: dict[str, Any] = {"terminateds": [False, False, True]}


def test_estimates_are_of_no_episode_that_is_joined_or_begins_amid(tmp_path: Path) -> None:
    whole = line(*ALONG, **ENDS)
    assert lengths(tmp_path, whole, whole) == [3, 3]
    assert lengths(tmp_path, line(*APART, **ENDS)) == []
    # A second line may be anybody's where no number of an episode says that it goes on.
    begun, rest = line((10, 11), (11, 12), t=[0, 1]), line(*ALONG, t=[2, 3, 4], **ENDS)
    rest["obs"], rest["new_obs"] = [[12], [13], [14]], [[13], [14], [15]]
    assert lengths(tmp_path, begun, rest) == []
    assert lengths(tmp_path, {**begun, "eps_id": [7] * 2}, {**rest, "eps_id": [7] * 3}) == [5]
    without = [{n: c for n, c in one.items() if n != "t"} for one in (begun, rest)]
    ids = [[7] * 2, [7] * 3]
    both = [{**one, "eps_id": own} for one, own in zip(without, ids, strict=True)]
    assert lengths(tmp_path, *both) == [5]
    both[1]["obs"] = [[50], [13], [14]]
    assert lengths(tmp_path, *both) == []
    assert lengths(tmp_path, line(*ALONG, drop="new_obs", **ENDS)) == []


@pytest.mark.parametrize("to", ["a.json", "a.parquet"])
def test_what_is_converted_is_chained_as_before(to: str, tmp_path: Path) -> None:
    """Lines of different episodes, which show the same, keep apart in one group of rows."""
    still = line((1, 1), (1, 1), drop="action_prob")
    given = written(tmp_path / "json", still, still)
    path = tmp_path / to
    assert convert(given, str(path), ENV) == 4
    reader = files_reader(
        "input", str(path), Rows(measuring.inspect(EnvironmentConfig(env=ENV)).spaces)
    )
    found = [reader.next()] if to == "a.parquet" else [reader.next(), reader.next()]
    has_next = np.concatenate([one["has_next"] for one in found])
    assert has_next.tolist() == [True, False, True, False]
    assert len(set(np.concatenate([one["eps_id"] for one in found]).tolist())) == 2


def test_a_set_of_episodes_takes_columns_that_say_what_follows(tmp_path: Path) -> None:
    given = written(tmp_path / "json", line(*ALONG, drop="new_obs"))
    with pytest.raises(
        StoredDataError, match="the column new_obs is missing, and episodes need it"
    ):
        convert(given, str(tmp_path / "made"), ENV)
