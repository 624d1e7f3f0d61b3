"""Results in the form of classic RLlib trainers.

The module also lists the names of all results, so that a misspelt one is found at once.
"""

from collections.abc import Mapping
from typing import Any

from trainables.core.results import ANY_NAME, OF_EVERY_RESULT, TRAINERS_OWN
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.trainer.config import TrainerConfig, has_policies

#: First parts of the names that only results with `classic_results` have.
RESULTS = (
    *("info", "sampler_results"),
    *("policy_reward_mean", "policy_reward_min", "policy_reward_max"),
)
#: Entries of a result that `sampler_results` repeats.
_SAMPLED = (
    *("episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean"),
    *("episodes_this_iter", "custom_metrics", "hist_stats"),
)


def is_classic(name: str) -> bool:
    """Return whether only results with `classic_results` have a metric of this name.

    `name` is a path such as ``info/learner``. Rewards by policy are classic only for the default
    policy.
    """
    first, _, rest = name.partition("/")
    return first in RESULTS and (first[:6] != "policy" or rest == DEFAULT_POLICY_ID)


def results(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries to be added to a result: its numbers under the names of RLlib's old trainers.

    - ``policy_reward_{mean,min,max}``: policy → return; absent before an episode has ended
    - ``info``: ``learner`` (policy → statistics) and ``num_steps_sampled``
    - ``sampler_results``: copies of the entries about episodes, such as ``episode_reward_mean``,
      ``custom_metrics`` and ``hist_stats``, and of the rewards by policy
    """
    rewards = {
        name: result.get(name, {DEFAULT_POLICY_ID: result[f"episode{name[6:]}"]})
        for name in RESULTS
        if name[:6] == "policy" and f"episode{name[6:]}" in result
    }
    learner, sampled = result["learner"], result["timesteps_total"]
    if not any(isinstance(one, Mapping) for one in learner.values()):
        learner = {DEFAULT_POLICY_ID: learner}
    held = {name: result[name] for name in _SAMPLED if name in result}
    return {
        **rewards,
        "info": {"learner": learner, "num_steps_sampled": sampled},
        "sampler_results": {**held, **rewards},
    }


# ---- names of results: one that ends with ``/`` stands for all below it -------------------------

#: Results about episodes.
_OF_EPISODES = frozenset(
    {"episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean"}
)
#: Results by policy.
_BY_POLICY = frozenset({"policy_reward_mean/", "policy_reward_min/", "policy_reward_max/"})
#: Results of several agents.
_OF_AGENTS = _BY_POLICY | {"agent_timesteps_total", "agent_timesteps_this_iter"}
#: Results of an evaluation.
_OF_EVALUATION = _OF_EPISODES | {"episodes", "num_faulty_episodes"}
#: Results of training, beside those about episodes.
_OF_TRAINING = frozenset(
    {
        *("num_faulty_episodes", "num_late_metrics", "num_healthy_workers", "train_batch_size"),
        *("exactness", "fake_sampler", "learner/", "weights_age/", "perf/"),
        *(f"{name}/" for name in TRAINERS_OWN),
    }
)


def result_names(settings: TrainerConfig) -> frozenset[str]:
    """Return the names that results may have with these settings.

    A name that ends with ``/`` stands for all names below it; `ANY_NAME` is included if callbacks
    may add names.
    """
    evaluation = settings.evaluation
    names = OF_EVERY_RESULT | _OF_EPISODES | _OF_TRAINING
    if settings.callbacks.callbacks or evaluation.evaluation_config.get("callbacks"):
        names |= {ANY_NAME}
    several = has_policies(settings.agents.multiagent)
    if several:
        names |= _OF_AGENTS
    if evaluation.evaluation_interval is not None:
        of_one = _OF_EVALUATION | (_BY_POLICY if several else frozenset())
        names |= {
            f"{part}/{name}" for part in ("evaluation", "evaluation_at_start") for name in of_one
        }
    if settings.offline.reads_experience:
        names |= {"off_policy/"}
    if settings.metrics.classic_results:
        names |= {f"{name}/" for name in RESULTS}
    return names
