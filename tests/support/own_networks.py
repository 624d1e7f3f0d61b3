"""Networks of a person's own, and ones that break their contract."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Net(nn.Module):
    """The one of docs/own-networks.md, with what torch saves beside parameters: normalisation."""

    def __init__(self, shape: tuple[int, ...], outputs: int, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(int(np.prod(shape)), width), nn.BatchNorm1d(width), nn.Tanh()
        )
        self.policy = nn.Linear(width, outputs)
        self.value = nn.Linear(width, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(observations)
        return self.policy(x), self.value(x).squeeze(-1)


class Plain(nn.Module):
    """One without buffers."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.both = nn.Linear(shape[0], outputs + 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        given = self.both(observations)
        return given[:, 1:], given[:, 0]


class Wide(Plain):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        given = self.both(observations)
        return given, given[:, 0]


class ColumnOfValues(Plain):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        given = self.both(observations)
        return given[:, 1:], given[:, :1]


class HeadAlone(Plain):
    def forward(self, observations: Tensor) -> Any:
        return self.both(observations)[:, 1:]


class Infinite(Plain):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        head, values = super().forward(observations)
        return head, values / 0.0


class Detached(Plain):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        head, values = super().forward(observations)
        return head.detach(), values


class Dropping(Plain):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(nn.functional.dropout(observations, 0.5, self.training))


class Crowded(Plain):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(observations - observations.mean(0))


class Counting(Plain):
    calls = 0

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return super().forward(observations + self.calls)


class Doubles(Plain):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.double()


class Empty(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()


class Raising(Plain):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        raise RuntimeError("no rows today")


class Drawing(Plain):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        head, values = super().forward(observations)
        return head, values + float(np.random.random())  # noqa: NPY002 what is refused


def tensor(shape: tuple[int, ...], outputs: int) -> Tensor:
    return torch.zeros(shape)


class Varied(Plain):
    """Of many layers: what each of them is in an exported file."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__((6,), outputs)
        self.body = nn.Sequential(
            *(nn.Linear(shape[0], 6), nn.LayerNorm(6), nn.GELU()),
            *(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ELU(), nn.LeakyReLU(), nn.Sigmoid()),
        )

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(self.body(observations))


class Parted(Plain):
    """Leaves out what layers and functions may leave out, and takes its numbers apart."""

    def __init__(self, shape: tuple[int, ...], outputs: int, turned: bool = False) -> None:
        super().__init__((5,), outputs)
        self.convolution = nn.Conv2d(shape[2], 5, shape[0], bias=False)
        self.turned = turned

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        x = self.convolution(observations.permute(0, 3, 1, 2))[..., -1].reshape(-1, 5)
        few, more = x.clamp(min=-0.1).split([2, 3], 1)
        x = torch.cat([more.clamp(max=0.5), few], 1)
        return super().forward(x.flip(1) if self.turned else x)


class Picture(Plain):
    """For images (H, W, C)."""

    def __init__(self, shape: tuple[int, ...], outputs: int, padding: int = 0) -> None:
        height, width = (side - 2 + 2 * padding for side in shape[:2])
        super().__init__((4 * height * width,), outputs)
        self.convolution = nn.Conv2d(shape[2], 4, 3, padding=padding)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(self.convolution(observations.permute(0, 3, 1, 2)).flatten(1))


class Branching(Plain):
    """A trace follows one of its two ways; it is compared where the other one is taken."""

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        head, values = super().forward(observations)
        return (head, values) if observations.abs().max() < 1e-3 else (-head, values)


class Values(nn.Module):
    """What every choice is worth."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        size = int(np.prod(shape))
        self.net = nn.Sequential(
            *(nn.Flatten(), nn.Linear(size, 16), nn.BatchNorm1d(16), nn.ReLU()),
            nn.Linear(16, outputs),
        )

    def forward(self, observations: Tensor) -> Any:
        return self.net(observations)


class Lone(nn.Module):
    """What every choice is worth, without buffers."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.net = nn.Linear(shape[0], outputs)

    def forward(self, observations: Tensor) -> Any:
        return self.net(observations)
