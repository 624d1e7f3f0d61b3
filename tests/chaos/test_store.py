"""The store of checkpoints under power cuts, failing calls and hostile bytes, in short runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.chaos import store_crashes, store_damage, store_faults, store_hostile, strangers
from benchmarks.chaos.store_cases import Cases, Failed
from tests.support.attacks import FILES, PICKLES
from trainables.core import rng


def test_whatever_a_power_cut_leaves_holds_what_was_acknowledged_and_every_fsync_is_needed(
    tmp_path: Path,
) -> None:
    assert store_crashes.run(tmp_path, 2, 0) == 0
    lines = Cases(tmp_path, "store_crashes").done
    assert sum(line.get("states", 0) for line in lines.values()) >= 60
    assert sum("without fsync" in name for name in lines) >= 20


def test_every_call_of_saving_may_fail(tmp_path: Path) -> None:
    assert store_faults.run(tmp_path, 0, 0) == 0
    lines = Cases(tmp_path, "store_faults").done.values()
    assert len(lines) >= 3 * 80
    assert any(line["refused"] for line in lines)


@pytest.mark.slow
@pytest.mark.skipif(not store_faults.can_trace(), reason="strace is not here, or may not trace")
@pytest.mark.parametrize("fault", ["signal=KILL", "error=ENOSPC"])
def test_a_system_call_of_each_kind_fails_or_is_the_last(fault: str) -> None:
    for call, (before, count) in store_faults.traced_calls().items():
        store_faults.fail_in_child(call, before + (count + 1) // 2, fault)


@pytest.mark.slow
def test_a_flipped_bit_is_noticed_in_every_byte_of_a_segment(tmp_path: Path) -> None:
    with store_damage.two_checkpoints(0) as trial:
        own, shared = trial.segments(shared=False)[0], trial.segments(shared=True)[0]
        for path in (own, shared):
            assert trial.flip(range(path.stat().st_size), 0, path)["tried"] >= 100


@pytest.mark.slow
def test_no_listed_or_randomly_changed_attack_runs_anything() -> None:
    stream = rng.generator(0, "hostile")
    listed = {
        **FILES,
        **{f"pickle {k}": store_hostile.checkpoint_of(v) for k, v in PICKLES.items()},
    }
    files = {name: store_hostile.resealed(content) for name, content in listed.items()}
    assert len(files) >= 140
    assert strangers.read_all(store_hostile.JAIL, files, good=0)["files"] == len(files)
    made = {str(number): store_hostile.make_file(stream) for number in range(300)}
    assert strangers.read_all(store_hostile.JAIL, made)["good"] > 0


@pytest.mark.slow
def test_the_jail_notices_what_it_is_there_for() -> None:
    leaky = replace(store_hostile.JAIL, module="tests.support.leaky_jail")
    deeds = {name: name.encode() for name in ("import", "process", "open", "slow", "fault")}
    for name, answer in strangers.answers_to(leaky, deeds).items():
        with pytest.raises(Failed, match=name):
            strangers.judge(name, answer)
    with pytest.raises(Failed, match="ended the process"):
        strangers.read_all(leaky, {"x": b"signal"})


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    ran = []

    def case(name: str, fails: bool = False) -> dict[str, int]:
        ran.append(name)
        if fails:
            raise Failed("on purpose")
        return {"figure": 1}

    cases = Cases(tmp_path, "part")
    assert cases.run("a", lambda: case("a"))
    assert not cases.run("b", lambda: case("b", fails=True))
    assert cases.close() == 1
    with cases.file.open("a") as stream:
        stream.write('{"case": "c", "ok"')
    again = Cases(tmp_path, "part")
    assert again.run("a", lambda: case("a"))
    assert again.run("b", lambda: case("b"))
    assert again.run("c", lambda: case("c"))
    assert again.close() == 0
    assert ran == ["a", "b", "b", "c"]
