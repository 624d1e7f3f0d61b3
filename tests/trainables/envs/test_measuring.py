"""Environments are measured where they can be ended, once for all who ask, and never by luck."""

import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import psutil
import pytest

from tests.support.environments import Counting, Observation, Unreadable
from tests.support.trainers import SMALL, differences, make
from tests.support.waiting import wait_until
from trainables.algorithms.ppo import PPO
from trainables.core import rng
from trainables.envs.exactness import levels, measuring, watching
from trainables.envs.exactness.levels import Measured, examine
from trainables.envs.exactness.measuring import Inquiry, measure
from trainables.envs.exactness.watching import Hangs, StackFrame, hung_call, read_stack
from trainables.envs.make import EnvironmentConfig
from trainables.envs.registry import register_env
from trainables.errors import ConfigError
from trainables.trainable import TrialContext

ROOT = Path(__file__).parents[3]
HERE = "tests.support.environments"
#: Long enough for a call of a small environment on a machine that is busy with others.
LIMIT_S = 10.0
#: So long that only a call that hangs takes it.
HANGS_S = 5.0


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_measured", {})
    monkeypatch.setattr(measuring, "_measurements", {})


def environment(env: str, **env_config: Any) -> EnvironmentConfig:
    return EnvironmentConfig(
        env=f"{HERE}:{env}", env_config=env_config, env_measure_timeout_s=LIMIT_S
    )


def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inquiry, "_start_child", lambda self: pytest.fail("it was measured"))


# ---- environments that hang ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "call"),
    [
        (f"{HERE}:Perilous", "step"),
        pytest.param(f"{HERE}:Resetless", "reset", marks=pytest.mark.proof),
        pytest.param(f"{HERE}:HangsWhenMade", "__init__", marks=pytest.mark.proof),
    ],
)
def test_a_trainer_on_an_environment_that_hangs_says_in_which_call(env: str, call: str) -> None:
    how = {} if call == "__init__" else {"how": "hangs"}
    with pytest.raises(ConfigError) as caught:
        make({"env": env, "env_config": how, "env_measure_timeout_s": HANGS_S})
    told = str(caught.value)
    assert f"its {call}() has not returned within {HANGS_S:g} s (env_measure_timeout_s)" in told
    assert "env_level: C measures nothing" in told
    assert ".py:" in told
    assert "\n" not in told
    left = [child.cmdline() for child in psutil.Process().children()]
    assert not [words for words in left if "environment-measured" in words]


def test_what_hangs_is_named_where_it_stands() -> None:
    dumped = (
        'Thread 0x1 (most recent call first):\n  File "/x/threading.py", line 1 in wait\n\n'
        "Current thread 0x2 (most recent call first):\n"
        '  File "/lib/socket.py", line 9 in recv\n'
        '  File "/me/game.py", line 7 in step\n'
        f'  File "{watching._OURS}/envs/seat.py", line 3 in step\n'
        '  File "<string>", line 1 in <module>\n'
    )
    stack = read_stack(dumped)
    assert stack[0] == StackFrame("<string>", 1, "<module>")
    assert hung_call(stack) == ("step()", ": /me/game.py:7, in recv (/lib/socket.py:9)")
    assert hung_call(read_stack("")) == ("process", "")


def test_an_environment_whose_process_dies_twice_is_not_exact() -> None:
    found = measure(environment("Perilous", how="dies"))
    assert found == Measured(
        "C", ("not A: its process died while it was measured; exit code 3",), ()
    )


IN_PLACE = """
import threading
from tests.support.environments import Perilous, Counting
from trainables.algorithms.ppo import PPO
from trainables.envs.registry import register_env
lock = threading.Lock()  # does not travel to another process
class Hangs(Counting):
    def __init__(self):
        super().__init__()
        if {when} == 0:
            lock.acquire(); lock.acquire()
    def step(self, action):
        if self.steps == {when}:
            lock.acquire(); lock.acquire()
        return super().step(action)
register_env("local", lambda: Hangs())
PPO({{"env": "local", "env_measure_timeout_s": {limit}}})
print("it went on")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("when", "call"), [(0, "__init__"), (3, "step")])
def test_one_that_cannot_travel_ends_the_process_with_a_word(when: int, call: str) -> None:
    script = IN_PLACE.format(when=when, limit=HANGS_S)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == watching.EXIT_CODE, done.stderr
    assert f"its {call}() has not returned within {HANGS_S:g} s" in done.stderr
    assert "it went on" not in done.stdout


@pytest.mark.slow
def test_an_environment_that_is_slow_in_all_and_not_in_a_call_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]  # a machine that stands still meanwhile uses up no time
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(watching, "LATER_S", 1e3)
    with watching.watched(EnvironmentConfig(env="CartPole-v1", env_measure_timeout_s=1.0)):
        for _ in range(6):  # three times as long as one call may take
            watching.announce_call()
            now[0] += 0.5
            time.sleep(0.5)  # it is looked at several times meanwhile


# ---- the same levels wherever it is measured -----------------------------------------------------

#: Of each level one, what uses global streams, and what fails.
EVERY = [
    ("Counting", {}),
    ("GlobalChance", {}),
    ("Unreadable", {}),
    ("Unreadable", {"remembers": "module"}),
    ("Unreadable", {"chance": "unseeded"}),
    ("Broken", {"what": "raise"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("env", "how"), EVERY)
def test_a_child_measures_what_this_process_would(env: str, how: dict[str, Any]) -> None:
    config = environment(env, **how)
    here = examine(config)
    Unreadable.episodes = 0
    assert measure(config) == here


@pytest.mark.slow
def test_what_is_measured_and_looked_at_takes_nothing_from_the_global_streams() -> None:
    config = environment("GlobalChance")
    held = threading.Lock()
    register_env("stuck", lambda: Counting(length=5 if held else 6))
    before = rng.capture_global()
    measure(config)
    measuring.inspect(config)
    stuck = EnvironmentConfig(env="stuck")
    assert measuring._pack(stuck, False) is None
    measure(stuck)
    assert differences(before, rng.capture_global()) == []


IN_A_SCRIPT = """
import gymnasium
from tests.support.environments import Counting, Unreadable
from trainables.envs.make import EnvironmentConfig
from trainables.envs.exactness.measuring import Inquiry, measure
played = [0]
class Own(Counting):
    def __init__(self):
        super().__init__()
        self.hidden = object()
    def reset(self, **given):
        played[0] += 1
        return super().reset(**given)
gymnasium.register("Own-v0", entry_point=Own)
if __name__ == "__main__":
    inquiry = Inquiry(EnvironmentConfig(env="Own-v0"))
    assert inquiry._child is not None and inquiry._child.seen() is not None  # it travels
    found = inquiry.measured()
    assert played == [0], "it was played here"
    print(found.level, found.reasons[-1])
    inquiry.close()
"""


@pytest.mark.slow
def test_a_class_of_the_running_script_travels_with_what_it_shares(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(IN_A_SCRIPT)
    command = [sys.executable, str(script)]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert done.stdout.startswith("D not B: playing it changes what all its copies share"), done
    assert "played" in done.stdout


# ---- chance ----------------------------------------------------------------------------------


class Ticking(Counting):
    """A thread of its own counts; what it has counted is observed."""

    def __init__(self, starts: bool = True) -> None:
        super().__init__()
        self.ticks = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._tick, daemon=True)
        if starts:
            self.thread.start()

    def _tick(self) -> None:
        while not self.over.wait(0.001):
            self.ticks += 1

    def _observe(self) -> Observation:
        return super()._observe() + self.ticks // 100

    def close(self) -> None:
        self.over.set()


def test_with_a_running_thread_the_weakest_of_several_measurements_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = iter([Measured("B"), Measured("C", ("not A: x", "not B: y")), Measured("B")])
    monkeypatch.setattr(levels, "_measure", lambda config, restarts: next(found))
    seen = examine(EnvironmentConfig(env="tests.trainables.envs.test_measuring:Ticking"))
    assert seen.level == "C"
    assert seen.reasons[-1].startswith("measured 3 times, as it has ")
    assert "thread" in seen.reasons[-1]
    assert not list(found)


def test_where_nothing_hints_at_chance_it_is_measured_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = iter([Measured("A"), Measured("C", ("not A: x",))])
    monkeypatch.setattr(levels, "_measure", lambda config, restarts: next(found))
    assert examine(EnvironmentConfig(env="CartPole-v1")) == Measured("A")


@pytest.mark.slow
def test_an_environment_with_its_own_thread_is_never_found_exact_by_luck() -> None:
    config = EnvironmentConfig(env="tests.trainables.envs.test_measuring:Ticking")
    assert measure(config).level not in levels.EXACT


# ---- known already ---------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_remembered_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = make({"env": f"{HERE}:Unreadable", "evaluation_interval": None})
    remembered = first.remembers()
    assert [one["level"] for one in remembered.values()] == ["B"]
    monkeypatch.setattr(measuring, "_measured", {})
    no_child(monkeypatch)
    context = TrialContext(seed=7, remembered=remembered)
    again = PPO(first.config, context)
    assert (again.level, again.remembers()) == ("B", remembered)


@pytest.mark.slow
def test_what_is_remembered_of_other_settings_or_is_no_level_is_measured() -> None:
    config = {**SMALL, "env": f"{HERE}:Counting"}
    (name,) = make(config).remembers()
    for remembered in ({name: {"level": "Z"}}, {"other": {"level": "C"}}, {name: None}):
        again = PPO(config, TrialContext(seed=7, remembered=remembered))
        assert again.level == "A"


@pytest.mark.slow
def test_a_restored_trainer_promises_what_the_checkpoint_says(tmp_path: Path) -> None:
    config = {"env": f"{HERE}:Unreadable", "evaluation_interval": None, "num_workers": 0}
    trainer = make(config)
    (name,) = trainer.remembers()
    found = {name: Measured("C", ("not A: x", "not B: by chance")).as_data()}
    weaker = PPO(trainer.config, TrialContext(seed=7, remembered=found))
    weaker.train()
    path = weaker.save(tmp_path)
    assert weaker.exactness == "C episode boundary"
    assert trainer.exactness == "B seed and action replay"
    trainer.restore(path)
    assert trainer.exactness == "C episode boundary"
    assert trainer.remembers() == found
    trainer.train()
    trainer.stop()


@pytest.mark.slow
def test_a_checkpoint_without_a_level_is_gone_on_with_as_measured(tmp_path: Path) -> None:
    trainer = make({"env": f"{HERE}:Counting"})
    trainer.train()
    state = trainer.get_state()
    del state["remembered"]
    trainer.set_state(state)
    assert trainer.exactness == "A exact state"


@pytest.mark.slow
def test_one_of_several_processes_measures_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = environment("Counting")
    first = Inquiry(config, shared=tmp_path / "shared")
    (file,) = (tmp_path / "shared").iterdir()
    no_child(monkeypatch)
    known: list[Measured] = []

    def ask() -> None:
        with closing(Inquiry(config, shared=tmp_path / "shared")) as second:
            known.append(second.measured())

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: is_waited_for(file))
    found = first.measured()
    asking.join()
    assert known == [found] == [Measured("A")]
    first.close()
    monkeypatch.setattr(measuring, "_measured", {})
    with closing(Inquiry(config, shared=tmp_path / "shared")) as third:
        assert third.measured() == found


@pytest.mark.slow
def test_who_finds_another_measuring_goes_on_until_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = environment("Counting")
    with closing(Inquiry(config, shared=tmp_path)) as first:
        no_child(monkeypatch)
        with closing(Inquiry(config, shared=tmp_path)) as second:
            found = first.measured()
            monkeypatch.setattr(measuring, "_measured", {})
            assert second.measured() == found == Measured("A")


@pytest.mark.slow
def test_who_waited_for_one_that_hangs_is_told_and_later_ones_try_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perilous = environment("Perilous", how="hangs")
    config = perilous.model_copy(update={"env_measure_timeout_s": HANGS_S})
    first = Inquiry(config, shared=tmp_path)
    (file,) = tmp_path.iterdir()
    told: list[str] = []

    def ask() -> None:
        with pytest.raises(Hangs) as caught, closing(Inquiry(config, shared=tmp_path)) as second:
            second.measured()
        told.append(str(caught.value))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: is_waited_for(file))
    with pytest.raises(Hangs) as caught:
        first.measured()
    no_child(monkeypatch)  # whoever waited measures nothing itself
    asking.join()
    first.close()
    assert told == [str(caught.value)]
    with pytest.raises(pytest.fail.Exception):
        Inquiry(config, shared=tmp_path)


def is_waited_for(file: Path) -> bool:
    """Whether somebody waits for the lock of a file."""
    locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any("->" in line and f":{file.stat().st_ino} " in line for line in locks)


@pytest.mark.slow
def test_a_file_that_was_torn_or_leads_elsewhere_is_not_believed(tmp_path: Path) -> None:
    config = environment("Counting")
    name = measuring._name_of(config, False)
    (tmp_path / f"{name}.json").write_text('{"level": "C", "reas')
    with closing(Inquiry(config, shared=tmp_path)) as inquiry:
        assert inquiry.measured().level == "A"
    measuring._measured.clear()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / f"{name}.json").symlink_to(elsewhere)
    with closing(Inquiry(config, shared=tmp_path / "linked")) as inquiry:
        assert inquiry.measured().level == "A"
    assert elsewhere.read_text() == "mine"


def test_settings_that_change_nothing_share_what_was_measured() -> None:
    one = EnvironmentConfig(env="CartPole-v1", env_replay_limit=7, env_measure_timeout_s=9.0)
    assert measuring._name_of(one, False) == measuring._name_of(
        EnvironmentConfig(env="CartPole-v1"), False
    )
    others = [
        EnvironmentConfig(env="CartPole-v1", env_config={"render_mode": "rgb_array"}),
        EnvironmentConfig(env="CartPole-v1", native_vector_env=True),
    ]
    names = {measuring._name_of(other, restarts) for other in others for restarts in (False, True)}
    assert len(names) == 4


def test_a_name_that_stands_for_another_environment_is_looked_at_anew() -> None:
    register_env("mine", Counting)
    config = EnvironmentConfig(env="mine")
    assert isinstance(measuring.inspect(config).spaces.action, gymnasium.spaces.Discrete)
    register_env("mine", lambda: Counting(continuous=True))
    assert isinstance(measuring.inspect(config).spaces.action, gymnasium.spaces.Box)
