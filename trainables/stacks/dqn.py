"""DQN that trains as a lane of a compiled program, with its replay on the same device."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from trainables.algorithms.dqn import DQN, Config
from trainables.errors import ConfigError
from trainables.learners.replay import ReplayBuffer
from trainables.learners.schedules import learning_rate
from trainables.stacks.dqn_program import STATS, Lane, Rates, Settings, Shape
from trainables.stacks.lanes import Tree, as_arrays
from trainables.stacks.n_step import NO_STEP, Step, Transition, no_steps
from trainables.stacks.replay import Replay, packed, unpacked, width
from trainables.stacks.stack import Stack
from trainables.stacks.trainer import LaneTrainer, in_lanes, or_infinite
from trainables.trainer.base.algorithm import Stateful

#: Longest transition, in steps, of the usual program; longer ones need another program.
_USUAL_STEPS = 8
#: Places of the smallest replay; larger ones have 4, 16, … times as many.
_LEAST_PLACES = 2048
#: Index of the worker under which a checkpoint stores the waiting steps.
_WORKER = 0


def replay_places(buffer_size: int) -> int:
    """Return the number of rows for which a compiled program allocates a replay of `buffer_size`.

    It is rounded up to 2048 times a power of 4, so that few programs are needed. Unused rows cost
    memory, and no time.
    """
    places = _LEAST_PLACES
    while places < buffer_size:
        places *= 4
    return places


class LaneReplay(ReplayBuffer):
    """The replay buffer of a DQN trainer whose rows are in a compiled program.

    This object has the rows until they are first copied into the program, after a restore until
    they are copied again, and while a checkpoint is written.

    Args:
        capacity: maximum number of rows.
        seed: seed of the trial.
        gamma: discount of all rows, for transitions of one step; None if rows have a column
            ``discounts``, as those of several steps do.
    """

    def __init__(self, capacity: int, seed: int, gamma: float | None) -> None:
        super().__init__(capacity, seed)
        self._gamma = gamma
        self.is_here = True
        """True while the rows are in this object instead of the lane."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned; the rows are then in this object."""
        super().set_state(state)
        self.is_here = True

    def to_arrays(self, places: int, features: int) -> Replay:
        """Return copies of the rows as the arrays of a program, which has room for `places` rows.

        Unused places are zeros. `features` is the number of features of an observation. Rows of
        single steps get the discount `gamma`.
        """
        rows = np.zeros((places, width(features)), np.float32)
        if self._size:
            columns = self._take(np.arange(self._size))
            if self._gamma is not None:
                columns["discounts"] = np.full(self._size, self._gamma, np.float32)
            given = Transition(**{name: columns[name] for name in Transition._fields})
            rows[: self._size] = packed(given)
        return Replay(rows, np.int32(self._size), np.int32(self._next))

    def take_arrays(self, replay: Replay) -> None:
        """Replace the rows, and the position of the next one, by those in a program's arrays.

        `is_here` does not change.
        """
        self.forget()
        if size := int(replay.size):
            found = unpacked(replay.rows[:size])._asdict()
            columns = {name: np.asarray(one) for name, one in found.items()}
            columns["actions"] = columns["actions"].astype(np.int64)
            if self._gamma is not None:
                del columns["discounts"]
            self.add(columns)
        self._next = int(replay.next)

    def forget(self) -> None:
        """Drop all rows, free their memory, and write from row 0; `is_here` does not change."""
        self._size = self._next = 0
        self._columns, self._rows = {}, np.zeros(0, dtype=np.uint8)


class LaneDQN(LaneTrainer, DQN):
    """DQN whose training runs in a compiled program, together with other trials of equal shape."""

    reads = frozenset(
        {
            *("double_q", "n_step", "tau", "buffer_size", "learning_starts", "replay_batch_size"),
            *("updates_per_step", "target_network_update_freq"),
        }
    )
    reads_of_model = frozenset({"hidden", "activation"})

    @classmethod
    def find_misfits(cls, settings: Config) -> Iterator[ConfigError]:
        """Yield an error for another exploration than ε-greedy."""
        if (kind := settings.exploration_config.type) != "EpsilonGreedy":
            yield in_lanes("exploration_config.type", kind, "EpsilonGreedy")

    def make_parts(self) -> dict[str, Stateful]:
        """Return the parts that checkpoints contain: ``replay``, ``target``, perhaps ``n_step``.

        They are those of `DQN.make_parts`, but ``replay`` is a new `LaneReplay`, which also becomes
        the trainer's attribute `replay`.
        """
        parts, of = super().make_parts(), self.settings
        gamma = None if self.n_step else of.gamma
        self._rows = LaneReplay(of.replay.buffer_size, self.seed, gamma)
        self.replay = self._rows
        return {**parts, "replay": self._rows}

    @classmethod
    def shape_of(cls, settings: Config) -> Shape:
        """Return what must be compiled into the program of a trainer with these settings.

        Raises ConfigError if programs do not have the environment.
        """
        common = cls.common_shape(settings)
        hidden = len(common["hidden"])
        trunk = [f"trunk.dense.{index}" for index in range(hidden - 1)]
        head = [f"head.{index}" for index in range(min(hidden, 1) + 1)]
        return Shape(
            **common,
            layers=(*trunk, *head),
            batch=settings.replay.replay_batch_size,
            places=replay_places(settings.replay.buffer_size),
            waiting=max(_USUAL_STEPS, settings.n_step) - 1,
        )

    def lane_settings(self) -> Settings:
        """Return the settings that the program takes as arrays, which may differ between trials."""
        settings = self.settings
        arrays: Settings = as_arrays(
            Settings(
                gamma=settings.gamma,
                grad_clip=or_infinite(settings.grad_clip),
                filter_clip=or_infinite(settings.filters.observation_filter_clip),
                adam=self.adam(),
                is_relu=self.architecture.activation == "relu",
                is_filtered=settings.filters.observation_filter != "NoFilter",
                is_double=settings.double_q,
                n_step=settings.n_step,
                tau=settings.tau or 0.0,
                capacity=settings.replay.buffer_size,
            )
        )
        return arrays

    def rates(self) -> Rates:
        """Return the scheduled settings in each of the R rounds of the next iteration, each (R,).

        They are learning rate, ε, number of updates (0 in rounds that end before
        ``learning_starts`` steps), and flags of rounds after which the learned network is copied
        into the target network (never with ``tau``).
        """
        settings, rows, starts = self.settings, self.settings.fragment_size, self.round_starts
        replay, every = settings.replay, settings.replay.target_network_update_freq
        learns = [one + rows >= replay.learning_starts for one in starts]
        copies_target = [
            settings.tau is None and (one + rows) // every > one // every for one in starts
        ]
        return Rates(
            lr=np.array([learning_rate(settings.schedule, one) for one in starts], np.float32),
            epsilon=np.array(
                [settings.exploration_config.epsilon(one) for one in starts], np.float32
            ),
            updates=np.array([replay.updates_per_step * one for one in learns], np.int32),
            copies_target=np.array(copies_target, np.bool_),
        )

    def epsilon(self, timesteps: int) -> float:
        """Return ε, the fraction of random choices, after this number of environment steps."""
        return self.settings.exploration_config.epsilon(timesteps)

    def as_lane_state(self) -> Lane:
        """Return the trainer's state as the program's arrays: networks, filter, episodes, replay.

        The replay comes from this object if it has the rows, else from the trainer's lane.
        """
        target = self.target.get_state()["weights"]
        features, shape = self.lane_env.features, self.shape
        has_rows = self._rows.is_here
        return Lane(
            learnt=self.optimizer_state(),
            target=self.as_program(target),
            key=self.copy_environment_array("key"),
            episodes=self.running_episodes(),
            seen=self.filter_statistics(),
            waiting=self._waiting(),
            replay=self._rows.to_arrays(shape.places, features)
            if has_rows
            else self.take("replay"),
        )

    def _waiting(self) -> Step:
        """Return the steps whose n-step transitions are incomplete, as the program's arrays (K, N).

        They are the last of the K rows. Rows without a step have `NO_STEP` as ``t``; that is all of
        them without n-step transitions, or if the stored steps are of another number of
        environments than N.
        """
        shape = self.shape
        none = no_steps(shape.waiting, shape.num_envs, self.lane_env.features)
        rows = {name: np.array(column) for name, column in none._asdict().items()}
        held = self.n_step.get_state()["held"].get(_WORKER) if self.n_step else None
        if held is not None and held["t"].shape[1] == shape.num_envs:
            count = len(held["t"])
            for name, column in rows.items():
                column[len(column) - count :] = held[name]
            rows["t"][len(rows["t"]) - count :][~held["valid"]] = NO_STEP
        return Step(**rows)

    def take_lane_state(self, take: Callable[[str], Tree]) -> None:
        """Copy target network and steps of incomplete transitions from the program to the trainer.

        `take` returns a field of the trainer's state in the program by name. Without n-step
        transitions only the target network is copied.
        """
        self.target.set_state({"weights": self.as_policy(take("target"))})
        if self.n_step:
            steps = self.settings.n_step - 1
            rows = {name: one[-steps:] for name, one in take("waiting")._asdict().items()}
            rows["actions"] = rows["actions"].astype(np.int64)
            held = {**rows, "valid": rows["t"] != NO_STEP}
            self.n_step.set_state({"held": {_WORKER: held}})

    def _hand_over(self) -> tuple[Stack, int]:
        """Copy the trainer's state into the program if it is newer than there; return its place.

        The rows of the replay are then dropped here. Returns (stack, place).
        """
        found = super()._hand_over()
        if self._rows.is_here:
            self._rows.is_here = False
            self._rows.forget()
        return found

    def _learnt_state(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the state of policy, filters, random streams and parts.

        If the replay's rows are in the program, they are copied from there, and dropped again
        afterwards.
        """
        if self._rows.is_here:
            return super()._learnt_state(checkpoint_dir)
        self._rows.take_arrays(self.take("replay"))
        given = super()._learnt_state(checkpoint_dir)
        self._rows.forget()
        return given

    def statistics(self, outcome: Any, index: int) -> dict[str, float]:
        """Return ``loss``, ``mean_q`` and ``grad_norm`` of a round, means over its updates.

        The round is that with `index` in an iteration's `outcome`. Empty if it had no updates.
        """
        if not (updates := int(outcome.updates[index])):
            return {}
        return dict(zip(STATS, (outcome.sums[index] / updates).tolist(), strict=True))
