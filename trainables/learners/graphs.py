"""Gradient steps, and acting, captured once and then launched as a whole: CUDA graphs.

A step of small networks is a hundred kernels of a few microseconds each, and to launch them one by
one from Python takes longer than they run. A captured step is one launch. It always reads the same
buffers, into which inputs are copied first. Steps before the capture are ordinary steps, which
create what the optimiser keeps. On the CPU, which captures nothing, a stand-in calls the step in
place of a launch, with the same buffers.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from trainables.policies.policy import Scalar

logger = logging.getLogger(__name__)
#: Function of inputs on the device that makes a gradient step and returns numbers by name.
Step: TypeAlias = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
#: Steps before a capture: libraries choose their algorithms, and moments are created.
WARM_UPS = 3
#: Most captured steps at a time, of different kinds or sizes; further ones are not captured.
MOST = 8


class CapturedPolicy(Protocol):
    """Protocol of a policy whose gradient steps are captured as CUDA graphs."""

    generation: int
    """Counter that grows when the policy replaces tensors which a captured step uses."""

    @property
    def device(self) -> torch.device:
        """Device of the networks."""

    @property
    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """Name → torch parameter."""


class Graph:
    """One gradient step for inputs of certain shapes, captured as a CUDA graph after a few calls.

    Args:
        step: the step. It must not wait for the device, nor depend on anything else that changes.
        inputs: inputs of the step by name, of which only shapes and types are used; numbers become
            tensors ().
    """

    def __init__(self, step: Step, inputs: Mapping[str, Scalar], device: torch.device) -> None:
        self._step, self._device = step, device
        # Adam's kernels read a rate in float32 on a GPU, and in float64 on the CPU.
        kind = torch.float32 if device.type == "cuda" else torch.float64
        self._buffers = {
            name: torch.zeros((), dtype=kind, device=device)
            if isinstance(one, float)
            else torch.empty_like(one)
            for name, one in inputs.items()
        }
        self._numbers: dict[str, float] = {}
        """Name of an input that is a number → its value in the buffers now."""
        self._sizes: dict[str, torch.Size] = {}
        """Name → shape of each of the step's results; empty before the first step."""
        self._results = torch.zeros(0)
        """Results of the latest launch as one vector, which the next launch overwrites."""
        self._launch: Callable[[], None] | None = None
        self.steps = 0
        """Number of steps that `run` has made."""
        self.gradients: list[Tensor | None] = []
        """Gradients that a captured step writes, which live as long as it does; empty before the
        capture."""

    @property
    def is_captured(self) -> bool:
        """True if the step has been captured, so that it is launched as a whole."""
        return self._launch is not None

    def run(self, inputs: Mapping[str, Scalar]) -> dict[str, Tensor]:
        """Make a gradient step with these inputs, and return its results by name.

        The first `WARM_UPS` calls make it kernel by kernel; the next one captures it. Raises an
        exception if it cannot be captured; it has not been made then.
        """
        self._fill(inputs)
        if self.steps < WARM_UPS:
            results = self._warm_up()
        else:
            if self._launch is None:
                self._launch = self._capture()
            self._launch()
            results = self._results.clone()
        self.steps += 1
        parts = torch.split(results, [size.numel() for size in self._sizes.values()])
        pairs = zip(self._sizes.items(), parts, strict=True)
        return {name: part.reshape(size) for (name, size), part in pairs}

    def run_once(self, inputs: Mapping[str, Scalar]) -> dict[str, Tensor]:
        """Make a gradient step kernel by kernel, never captured; return its results by name."""
        self._fill(inputs)
        return dict(self._step(self._buffers))

    def _fill(self, inputs: Mapping[str, Scalar]) -> None:
        """Copy the inputs into the buffers that the captured step reads."""
        tensors = {name: one for name, one in inputs.items() if isinstance(one, Tensor)}
        torch._foreach_copy_([self._buffers[n] for n in tensors], list(tensors.values()))
        for name, one in inputs.items():
            if isinstance(one, float) and self._numbers.get(name) != one:
                self._buffers[name].fill_(one)
                self._numbers[name] = one

    def _step_to_vector(self) -> Tensor:
        """Make the step on the buffers, and return all its results, flattened, as one vector."""
        found = self._step(self._buffers)
        self._sizes = {name: one.shape for name, one in found.items()}
        return torch.cat([one.detach().reshape(-1) for one in found.values()])

    def _warm_up(self) -> Tensor:
        """Make the step kernel by kernel, and return its results as one vector.

        On a GPU it runs in another stream, as a later capture demands.
        """
        if self._device.type != "cuda":
            return self._step_to_vector()
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # as torch has it
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            found = self._step_to_vector()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        return found

    def _capture(self) -> Callable[[], None]:
        """Capture the step without making it; return a function that launches it.

        On the CPU, where nothing is captured, the function makes the step.
        """
        if self._device.type != "cuda":

            def stand_in() -> None:
                """Compute the step's results without a graph."""
                self._results = self._step_to_vector()

            return stand_in
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._results = self._step_to_vector()
        launch: Callable[[], None] = graph.replay
        return launch


class Graphs:
    """The captured steps of one policy: one `Graph` for each kind and shapes of inputs.

    Args:
        what: name of a step in the warning that it cannot be captured.
    """

    def __init__(self, policy: CapturedPolicy, what: str = "a gradient step") -> None:
        self._policy, self._what = policy, what
        self._generation = policy.generation
        self._failed = False
        self._known: dict[Any, Graph] = {}

    @property
    def captured(self) -> int:
        """Number of captured graphs that are kept: one for each kind and shapes of inputs."""
        return sum(one.is_captured for one in self._known.values())

    def run(self, kind: str, step: Step, inputs: Mapping[str, Scalar]) -> dict[str, Tensor]:
        """Make a gradient step, captured if possible; return its results by name.

        The first `WARM_UPS` steps run kernel by kernel. So do those of further kinds or shapes
        while `MOST` graphs are kept. All graphs are dropped if the policy has replaced tensors. If
        a step cannot be captured, a warning is logged once, and all steps run kernel by kernel.

        Args:
            kind: name of the step; each name stands for one function.
            inputs: inputs of the step on the device; numbers become tensors ().
        """
        if self._generation != self._policy.generation:
            self._known.clear()
            self._generation = self._policy.generation
        shapes = [
            (name, one.shape, one.dtype) if isinstance(one, Tensor) else (name,)
            for name, one in inputs.items()
        ]
        key = (kind, *shapes)
        graph = self._known.get(key) or Graph(step, inputs, self._policy.device)
        if self._failed or (len(self._known) >= MOST and key not in self._known):
            return graph.run_once(inputs)
        self._known[key] = graph
        if graph.steps != WARM_UPS:
            return graph.run(inputs)
        try:
            results = graph.run(inputs)
        except Exception as error:
            if graph.is_captured:
                raise
            self._give_up(error)
            return graph.run_once(inputs)
        graph.gradients = [one.grad for one in self._policy.parameters.values()]
        return results

    def _give_up(self, error: Exception) -> None:
        """Drop all captured steps, capture none any more, and log the reason.

        The gradients of the policy's parameters are set to None.
        """
        logger.warning(
            "graphs: %s cannot be captured (%s: %s), so its kernels are launched one by one; set "
            "graphs to off to skip this attempt",
            *(self._what, type(error).__name__, str(error).partition("\n")[0]),
        )
        self._failed = True
        self._known.clear()
        for parameter in self._policy.parameters.values():
            parameter.grad = None
