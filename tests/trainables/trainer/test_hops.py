"""Few functions lie between `train` and the `step` of an environment, so that it reads well."""

import sys
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv

from tests.support.trainers import make

MOST = 9


class Traced(CartPoleEnv):
    """Notes by which functions of the trainer its latest step was called, outermost first."""

    chain: tuple[str, ...] = ()

    def step(self, action: Any) -> Any:
        found = []
        frame = sys._getframe(1)
        while frame.f_back is not None:
            if frame.f_globals.get("__name__", "").startswith("trainables."):
                found.append(f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        Traced.chain = tuple(reversed(found))
        return super().step(action)  # type: ignore[no-untyped-call]


def test_from_train_to_the_step_of_an_environment_are_few_functions() -> None:
    trainer = make({"env": Traced, "env_level": "C", "evaluation_interval": None})
    trainer.train()
    trainer.stop()
    chain = "\n".join(Traced.chain)
    assert Traced.chain[0] == "trainables.trainable:Trainable.train"
    assert "on_policy_step" in chain
    assert len(Traced.chain) <= MOST, f"{len(Traced.chain)} functions, at most {MOST}:\n{chain}"
