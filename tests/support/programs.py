"""Ways in which a trial's code starts processes, each as a function of a sweep."""

import importlib
import importlib.util
import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import shared_memory
from typing import Any

import numpy as np

from trainables import report

CONTEXTS = ("fork", "spawn", "forkserver")
GOOD = 5.0
"""The result of each way where its processes did what they should."""
ROUNDS = 3
"""How often each way is tried in a trial: some faults show only now and then."""
SLOW = (
    "loader_spawn",
    "loader_forkserver",
    "torch_spawn",
    "environments_spawn",
    "stable_baselines3",
)
"""Those whose processes import torch or gymnasium, which takes seconds: they are tried once."""


def _square(number: int) -> int:
    return number * number


def _put(queue: Any, number: int) -> None:
    queue.put(number * number)


def _spawned(index: int, queue: Any) -> None:
    queue.put(index)


def _pool(context: str) -> float:
    with multiprocessing.get_context(context).Pool(2) as pool:
        return float(sum(pool.map(_square, [1, 2])))


def _process(context: str) -> float:
    used = multiprocessing.get_context(context)
    queue = used.SimpleQueue()
    process = used.Process(target=_put, args=(queue, 2))  # type: ignore[attr-defined]
    process.start()
    found = float(queue.get())
    process.join()
    assert process.exitcode == 0
    return found + 1.0


def _default_pool() -> float:
    with multiprocessing.Pool(2) as pool:
        return float(sum(pool.map(_square, [1, 2])))


def _executor() -> float:
    with ProcessPoolExecutor(2) as executor:
        return float(sum(executor.map(_square, [1, 2])))


def _joblib() -> float:
    import joblib

    return float(sum(joblib.Parallel(n_jobs=2)(joblib.delayed(_square)(n) for n in (1, 2))))


def _ended_by_signal() -> float:
    """A process that waits, and is ended as an executor ends its workers."""
    process = multiprocessing.Process(target=signal.pause)
    process.start()
    process.terminate()
    process.join()
    return GOOD if process.exitcode == -signal.SIGTERM else 0.0


def _interrupted() -> float:
    """A program that waits, and is interrupted as servers and simulators are."""
    wait = "import time; print(flush=True); time.sleep(600)"
    program = subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    program.send_signal(signal.SIGINT)
    program.communicate()
    return GOOD if program.returncode in (-signal.SIGINT, 130) else 0.0


def _program() -> float:
    read = "import sys; print(5 + len(sys.stdin.read()))"
    return float(
        subprocess.run([sys.executable, "-c", read], capture_output=True, check=True).stdout
    )


def _shared_memory() -> float:
    block = shared_memory.SharedMemory(create=True, size=8)
    shared = np.ndarray((1,), buffer=block.buf)
    shared[0] = GOOD
    found = float(shared[0])
    del shared
    block.close()
    block.unlink()
    return found


def _main_process() -> float:
    """What libraries look at to find out whether they run in a program's main process."""
    current = multiprocessing.current_process()
    as_main = (current.name, multiprocessing.parent_process()) == ("MainProcess", None)
    by_default = multiprocessing.get_start_method() == multiprocessing.get_all_start_methods()[0]
    return GOOD if as_main and by_default and not current.daemon else 0.0


def _loader(context: str | None, persistent: bool) -> float:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    with _one_thread():
        loader = DataLoader(
            TensorDataset(torch.ones(5)),
            2,
            num_workers=2,
            persistent_workers=persistent,
            multiprocessing_context=context,
        )
        return float(sum(batch[0].sum().item() for batch in loader))


def _torch_spawn() -> float:
    from torch.multiprocessing.spawn import spawn

    queue = multiprocessing.get_context("spawn").SimpleQueue()
    spawn(_spawned, args=(queue,), nprocs=2)  # type: ignore[no-untyped-call]
    return float(queue.get() + queue.get()) + 4.0


def _environments(context: str | None) -> float:
    import gymnasium

    envs = gymnasium.make_vec(
        "CartPole-v1", 2, vectorization_mode="async", vector_kwargs={"context": context}
    )
    envs.reset(seed=0)
    _, rewards, *_ = envs.step([0, 1])
    envs.close()
    return float(rewards.sum()) + 3.0


def _environments_of_stable_baselines() -> float:
    import gymnasium

    vec_env: Any = importlib.import_module("stable_baselines3.common.vec_env")
    envs = vec_env.SubprocVecEnv([partial(gymnasium.make, "CartPole-v1")] * 2)
    envs.reset()
    _, rewards, *_ = envs.step(np.array([0, 1]))
    envs.close()
    return float(rewards.sum()) + 3.0


def _lightning() -> float:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    lightning: Any = importlib.import_module("lightning")

    class Mean(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.mean = torch.nn.Parameter(torch.zeros(()))
            self.seen = 0.0

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            self.seen += batch[0].sum().item()
            loss: torch.Tensor = (batch[0].mean() - self.mean) ** 2
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD([self.mean], lr=0.1)

    with _one_thread():
        module = Mean()
        lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        ).fit(module, DataLoader(TensorDataset(torch.ones(5)), 2, num_workers=2))  # fmt: skip
    return module.seen


def _installed(ways: Mapping[str, Callable[[], float]]) -> dict[str, Callable[[], float]]:
    """Package → its way, of those that are installed."""
    return {name: way for name, way in ways.items() if importlib.util.find_spec(name)}


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


WAYS: Mapping[str, Callable[[], float]] = {
    **{f"pool_{context}": partial(_pool, context) for context in CONTEXTS},
    **{f"process_{context}": partial(_process, context) for context in CONTEXTS},
    "default_pool": _default_pool,
    "executor": _executor,
    "joblib": _joblib,
    "ended_by_signal": _ended_by_signal,
    "interrupted": _interrupted,
    "program": _program,
    "shared_memory": _shared_memory,
    "main_process": _main_process,
    "loader": partial(_loader, None, persistent=False),
    "loader_fork": partial(_loader, "fork", persistent=False),
    "loader_spawn": partial(_loader, "spawn", persistent=False),
    "loader_forkserver": partial(_loader, "forkserver", persistent=False),
    "loader_persistent": partial(_loader, None, persistent=True),
    "torch_spawn": _torch_spawn,
    "environments": partial(_environments, None),
    "environments_spawn": partial(_environments, "spawn"),
    **_installed({"stable_baselines3": _environments_of_stable_baselines, "lightning": _lightning}),
}
"""Name → a function that starts processes and returns `GOOD` where they did what they should."""


def run(config: Mapping[str, Any]) -> None:
    """Train: start processes in the way of the settings."""
    for _ in range(1 if config["way"] in SLOW else ROUNDS):
        report({"found": WAYS[config["way"]]()})
