"""What an environment gives that is not finite, long after its episode began: always told alike."""

from typing import Any, ClassVar

import numpy as np
import pytest

from tests.support.environments import Counting
from tests.support.trainers import PLAIN, make
from trainables.errors import EnvError, NotFiniteError
from trainables.policies import distributions

FIRST = 201
"""The step in which each breach begins."""


class Breaks(Counting):
    """Gives what no environment may give, from its 201st step on."""

    last: ClassVar[int] = 0

    def __init__(self, what: str) -> None:
        super().__init__(length=1000)
        self.what = what

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        Breaks.last = self.steps
        if self.steps < FIRST:
            return observation, reward, terminated, truncated, info
        answers: dict[str, Any] = {
            "observation": (np.array([np.nan], np.float32), reward, False, False, info),
            "reward": (observation, np.inf, False, False, info),
            "final": (np.array([np.inf], np.float32), reward, False, True, info),
            "shape": (np.zeros(2, np.float32), reward, False, False, info),
            "kind": (observation, reward, 1.0, False, info),
            "length": (observation, reward, False, info),
        }
        if self.what == "then raises":
            if self.steps == FIRST:
                return answers["observation"]
            raise ValueError("the world ended")
        return answers[self.what]


WORDS = {
    "observation": (NotFiniteError, r"worker 0, environment 0: observation \[nan\] is not finite"),
    "reward": (NotFiniteError, r"worker 0, environment 0: reward inf is not finite"),
    "final": (NotFiniteError, r"environment 0: final observation \[inf\] is not finite"),
    "shape": (EnvError, r"worker 0, environment 0: .*shape \(2,\)"),
    "kind": (EnvError, r"worker 0, environment 0: .*terminated = 1.0, a float"),
    "length": (EnvError, r"worker 0, environment 0: .*four values are the older gym interface"),
    "then raises": (NotFiniteError, r"worker 0, environment 0: observation \[nan\]"),
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"observation_filter": "MeanStdFilter", "normalize_rewards": True},
    "whole episodes": {"batch_mode": "complete_episodes", "train_batch_size": None},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", WORDS)
def test_a_breach_that_begins_at_step_201_is_told_before_it_is_learnt_from(
    what: str, mode: str
) -> None:
    """In fragments of 32 steps it stands in the seventh, whose rows nobody is given."""
    config = {"env": f"{__name__}:Breaks", "env_config": {"what": what}, "env_level": "C"}
    size = {"num_envs_per_worker": 1, "rollout_fragment_length": 32, "train_batch_size": 32}
    trainer = make({**PLAIN, **config, **size, **MODES[mode]})
    kind, words = WORDS[what]
    given = 0
    with pytest.raises(kind, match=words):
        while given < 1000:
            given += trainer.workers.sample()[0].count
    assert given in (0, 192)
    assert Breaks.last <= 224
    trainer.stop()


def test_two_choices_are_drawn_as_any_number_of_choices_is() -> None:
    """Column by column and row by row give the same bits from the same stream."""
    stream = np.random.default_rng(5)
    for scale in (1e-3, 1.0, 60.0):
        head = (stream.standard_normal((256, 2)) * scale).astype(np.float32)
        head[0] = 0.0
        for seed in (None, 3):
            ours, theirs = (
                draw(head, None if seed is None else np.random.default_rng(seed))
                for draw in (distributions._choose_of_two, row_by_row)
            )
            for mine, other in zip(ours, theirs, strict=True):
                assert mine.dtype == other.dtype
                assert mine.tobytes() == other.tobytes()


def row_by_row(logits: Any, stream: np.random.Generator | None) -> tuple[Any, Any]:
    logp = distributions.log_softmax(logits)
    scores = logp if stream is None else distributions._race(logp, stream)
    chosen = scores.argmax(axis=-1)
    return chosen, logp[np.arange(len(chosen)), chosen]
