"""A sweep learns from earlier ones when it is created."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import BadConfig
from sweep.driver.start.creation import learning
from sweep.history.events import Created, EarlierSweep, Learnt, Recorded
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from tests.support import sweeps

SPACE: dict[str, Any] = {
    "lr": {"loguniform": [1e-3, 0.9]},
    "target": {"choice": [1.0, 2.0]},
    "x0": {"uniform": [1, 3], "when": {"target": 2.0}},
}


def make(root: Path, **changes: Any) -> Folder:
    short: dict[str, Any] = {"scheduler": "fifo", "stop": {"training_iteration": 2}}
    short |= {"deterministic": {"batch": 1}, "space": SPACE, "trials": 4, "searcher": "tpe"}
    return sweeps.make(root, **{**short, **changes})


def searcher(prior: Any, name: str = "tpe") -> dict[str, Any]:
    return {"name": name, "prior": prior}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished sweep of 14 trials and one under ASHA."""
    folder = tmp_path_factory.mktemp("sweeps")
    sweeps.run(make(folder, name="first", trials=14))
    asha = {"name": "asha", "grace_period": 1, "reduction_factor": 3}
    sweeps.run(make(folder, name="rungs", trials=9, scheduler=asha, stop={"training_iteration": 3}))
    return folder


@pytest.fixture
def beside(root: Path, tmp_path: Path) -> Path:
    """A folder with a copy of these sweeps."""
    return Path(shutil.copytree(root, tmp_path / "copy"))


def learnt(folder: Folder) -> tuple[EarlierSweep, ...]:
    event = Ledger(folder.ledger).newest(Learnt.kind)
    assert isinstance(event, Learnt)
    return event.sweeps


def searched(folder: Folder) -> list[dict[str, Any]]:
    return [trial.searched for trial in sweeps.history(folder).trials]


def reasons(folder: Folder) -> list[str]:
    """Why settings that the prior proposed were proposed."""
    events = [r.event for records in iterate(Ledger(folder.ledger)) for r in records]
    return [e.reason for e in events if isinstance(e, Created) and e.origin == "prior"]


def test_how_the_settings_of_earlier_sweeps_ranked_stands_in_the_new_ledger(root: Path) -> None:
    folder = make(root, name="both", searcher=searcher(["rungs", str(root / "first")]))
    for found, name in zip(learnt(folder), ["rungs", "first"], strict=True):
        ranked = sweeps.history(Folder(root, name)).ranked()
        assert (found.name, found.ranked) == (name, len(ranked))
        assert [(t.trial, t.rank) for t in found.trials] == [
            (trial.number, rank) for rank, trial in enumerate(ranked, 1)
        ]
        assert [t.settings for t in found.trials] == [trial.searched for trial in ranked]
    assert sweeps.history(folder).trials == []
    assert sweeps.history(folder).earlier_sweeps == learnt(folder)


def test_settings_that_did_well_in_earlier_sweeps_are_proposed_first(
    root: Path, tmp_path: Path
) -> None:
    taught = make(tmp_path, name="taught", searcher=searcher([str(root / "first")]), trials=8)
    alone = make(tmp_path, name="alone", searcher=searcher("none"), trials=8)
    for folder in (taught, alone):
        sweeps.run(folder)
    fifth = sweeps.history(Folder(root, "first")).ranked()[4].score
    assert fifth is not None
    good = [
        sum(trial.score < fifth for trial in sweeps.history(folder).trials if trial.score)
        for folder in (taught, alone)
    ]
    assert good[0] > good[1]
    assert searched(taught) != searched(alone)


def test_a_proposal_names_the_earlier_sweeps_of_its_prior_and_the_ranks_there(
    root: Path, tmp_path: Path
) -> None:
    folder = make(tmp_path, searcher=searcher([str(root / "first"), str(root / "rungs")]))
    sweeps.run(folder)
    assert reasons(folder)
    one = r"\d+ % \((the settings|most like those) of trial \d+, rank \d+ of"
    for why in reasons(folder):
        assert re.search(rf"in earlier sweeps, .*: .*first {one} 14\)", why)
        assert re.search(rf"rungs {one} 9\)", why)


def test_every_sweep_of_the_root_that_fits_is_learnt_from(beside: Path) -> None:
    make(beside, name="upwards", mode="max", trials=1)
    make(beside, name="waiting", trials=1)
    (beside / "broken").mkdir()
    (beside / "broken" / "sweep.db").write_bytes(b"no ledger at all")
    folder = make(beside, name="new", searcher=searcher("root"))
    assert [sweep.name for sweep in learnt(folder)] == ["first", "rungs"]


def test_a_root_without_another_sweep_teaches_nothing(tmp_path: Path) -> None:
    taught = make(tmp_path / "a", searcher=searcher("root"))
    alone = make(tmp_path / "b", searcher=searcher("none"))
    for folder in (taught, alone):
        sweeps.run(folder)
    assert searched(taught) == searched(alone)
    assert Ledger(taught.ledger).newest(Learnt.kind) is None


@pytest.mark.parametrize("name", ["tpe", "bohb", "gp", "random"])
@pytest.mark.parametrize("prior", ["root", ["first", "rungs"]])
def test_a_killed_sweep_needs_the_earlier_ones_no_more(beside: Path, name: str, prior: Any) -> None:
    straight = make(beside, name="straight", searcher=searcher(prior, name), trials=6)
    shutil.copytree(straight.path, beside.parent / "killed" / "straight")
    killed = Folder(beside.parent / "killed", "straight")
    sweeps.run(straight)
    assert reasons(straight)
    for other in ("first", "rungs"):
        shutil.rmtree(beside / other)
    for _ in range(100):
        if sweeps.drive(killed, kill_at=4) != "killed":
            break
    assert sweeps.decisions(killed) == sweeps.decisions(straight)
    assert reasons(killed) == reasons(straight)


def test_an_earlier_sweep_that_changes_changes_no_proposal(beside: Path) -> None:
    one = make(beside, name="one", searcher=searcher(["first"]), trials=6)
    other = Folder(Path(shutil.copytree(one.path, beside.parent / "other" / "one")).parent, "one")
    sweeps.run(one)
    sweeps.run(Folder(beside, "first"), trials=17)
    sweeps.run(other)
    assert searched(one) == searched(other)


def test_a_wider_space_is_read_by_the_prior(beside: Path) -> None:
    wide = {**SPACE, "target": {"choice": [1.0, 2.0, 3.0]}}
    folder = make(beside, name="new", searcher=searcher(["first"]))
    sweeps.run(folder)
    sweeps.run(folder, trials=9, space=wide)
    assert len(sweeps.history(folder).trials) == 9
    assert len(reasons(folder)) > 3


def test_bred_trials_are_left_out(tmp_path: Path) -> None:
    """Their scores are owed to their ancestors' settings too."""
    pbt = {"name": "pbt", "perturbation_interval": 2}
    population = make(tmp_path, name="pbt", scheduler=pbt, stop={"training_iteration": 4})
    sweeps.run(population)
    bred = {t.number for t in sweeps.history(population).trials if t.parent is not None}
    (found,) = learnt(make(tmp_path, name="new", searcher=searcher(["pbt"])))
    assert bred
    assert {trial.trial for trial in found.trials} == {0, 1, 2, 3}


def test_a_setting_that_was_fixed_there_may_be_searched_here(root: Path, tmp_path: Path) -> None:
    space = {**SPACE, "noise": {"uniform": [0.0, 1.0]}, "new": {"uniform": [0.0, 1.0]}}
    prior = searcher([str(root / "first")])
    folder = make(tmp_path, searcher=prior, space=space, config=None)
    (found,) = learnt(folder)
    assert {trial.settings["noise"] for trial in found.trials} == {0.1}
    assert not any("new" in trial.settings for trial in found.trials)


def test_few_trials_of_a_large_sweep_are_learnt_from_evenly(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "MOST", 10)
    both = [str(root / "first"), str(root / "rungs")]
    found = learnt(make(tmp_path, searcher=searcher(both)))
    assert [trial.rank for trial in found[0].trials] == [1, 3, 6, 9, 12]
    assert found[0].ranked == 14
    assert len(found[1].trials) == 5


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        (["nowhere"], r"'nowhere'.*a sweep in .*first, rungs.*ppo/Acrobot-v1"),
        (["first", "../nowhere"], r"'\.\./nowhere'.*a sweep in"),
        ([""], r"a sweep in"),
        (["ppo/Pong"], r"auto, none, root, sweeps, or games of one trainable among ppo/Acrobot"),
        ("first", r"'auto', 'none' or 'root'"),
        (
            ["broken"],
            "the sweep broken cannot be used: .*; expected a sweep whose ledger can be read",
        ),
        (
            ["empty"],
            "the sweep empty cannot be used: only 0 trials in it have such a score; .*at least 2",
        ),
    ],
)
def test_a_prior_that_cannot_work_is_refused_in_one_line(
    beside: Path, prior: Any, said: str
) -> None:
    make(beside, name="empty")
    (beside / "broken").mkdir()
    (beside / "broken" / "sweep.db").write_bytes(b"no ledger at all")
    before = sorted(beside.iterdir())
    with pytest.raises(BadConfig, match=said) as caught:
        make(beside, name="new", searcher=searcher(prior))
    assert len(str(caught.value).splitlines()) == 1
    assert sorted(beside.iterdir()) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"trainable": "tests.support.quadratic:RayStyle"},
            r"it trains .*:Quadratic; .* that trains tests\.support\.quadratic:RayStyle",
        ),
        (
            {"metric": "training_iteration"},
            "it has the metric loss; .* that has the metric training_iteration",
        ),
        ({"mode": "max"}, "it has the mode min; expected a sweep that has the mode max"),
        (
            {"space": {"momentum": {"uniform": [0, 1]}}, "config": {"lr": 0.1}},
            "none of the settings that this sweep searches; .*at least one of momentum",
        ),
    ],
)
def test_a_sweep_of_something_else_is_refused(
    root: Path, tmp_path: Path, changes: Any, said: str
) -> None:
    with pytest.raises(BadConfig, match=said):
        make(tmp_path / "new", searcher=searcher([str(root / "first")]), **changes)
    assert not (tmp_path / "new").exists()


def test_what_was_learnt_is_recorded_before_anything_else(root: Path) -> None:
    folder = make(root, name="early", searcher=searcher(["first"]))
    records: Sequence[Recorded] = next(iter(iterate(Ledger(folder.ledger))))
    assert isinstance(records[0].event, Learnt)
