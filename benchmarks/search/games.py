"""The games by name."""

from benchmarks.search.game import Game, Space
from benchmarks.search.synthetic import Quadratic, Synthetic, branin, hartmann
from benchmarks.search.tabulated import Tabulated

NAMES = ("branin", "hartmann", "CartPole-v1", "Acrobot-v1")
BRED = ("quadratic", "CartPole-v1", "Acrobot-v1")


def load(name: str, seed: int) -> Game:
    """The game of this name."""
    if name == "branin":
        space: Space = {"x0": ("uniform", (-5.0, 10.0)), "x1": ("uniform", (0.0, 15.0))}
        return Synthetic(branin, space, -1.5, -0.397887, seed)
    if name == "hartmann":
        space = {f"x{i}": ("uniform", (0.0, 1.0)) for i in range(6)}
        return Synthetic(hartmann, space, 0.6, 3.32237, seed)
    return Quadratic(seed) if name == "quadratic" else Tabulated(name, seed)
