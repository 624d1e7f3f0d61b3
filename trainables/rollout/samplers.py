"""Which sampler a worker has: by its batch mode, by who is waited for, and by where it runs."""

from collections.abc import Mapping

import numpy as np

from trainables.rollout.async_sampler import AsyncSampler
from trainables.rollout.black_hole import BlackHoleSampler
from trainables.rollout.episodes import EpisodeSampler
from trainables.rollout.polling import PollingSampler
from trainables.rollout.sampler import Sampler
from trainables.rollout.spec import WorkerSpec

_BY_BATCH_MODE: Mapping[str, type[Sampler]] = {
    "truncate_episodes": Sampler,
    "complete_episodes": EpisodeSampler,
}


def sampler_class(spec: WorkerSpec) -> type[Sampler]:
    """The class that collects fragments."""
    if spec.lanes.remote_env_batch_wait_ms > 0:
        return PollingSampler
    return _BY_BATCH_MODE[spec.sampling.batch_mode]


def in_thread(
    spec: WorkerSpec, sampler: Sampler, stream: np.random.Generator
) -> AsyncSampler | None:
    """The thread that `sampler` collects in; None: the caller's own."""
    if not spec.sampling.sample_async:
        return None
    make = BlackHoleSampler if spec.sampling.blackhole_outputs else AsyncSampler
    return make(sampler, stream)
