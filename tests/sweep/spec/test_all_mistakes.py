"""All mistakes of a spec are told at once, in the order of its file."""

from pathlib import Path

import pytest

from sweep.cli.main import main
from sweep.core.errors import BadConfig, Mistakes
from sweep.driver.start import prepare
from sweep.spec import parse
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigErrors

MANY = """\
nam: many
trials: two
trainable: tests.support.quadratic:Quadratik
metric: loss
mode: minimum
space: {k: {loguniform: [1.0, 1.0e-3]}, j: {unifrom: [0, 1]}}
scheduler: ahsa
searcher: {name: tpe, startup: 3}
trackers: [csv, mlfow]
"""


def lines_of(error: BadConfig) -> list[tuple[int | None, str]]:
    assert isinstance(error, Mistakes)
    found = [mistake for mistake in error.mistakes if isinstance(mistake, BadConfig)]
    assert len(found) == len(error.mistakes)
    return [(mistake.line, mistake.key) for mistake in found]


def test_all_mistakes_are_told_in_the_order_of_the_file() -> None:
    with pytest.raises(Mistakes) as caught:
        prepare.prepare_text(MANY, "many.yaml", ())
    assert lines_of(caught.value) == [
        (1, "nam"),
        (2, "trials"),
        (3, "trainable"),
        (5, "mode"),
        (6, "space.k.loguniform"),
        (6, "space.j.unifrom"),
        (7, "scheduler"),
        (8, "searcher.startup"),
        (9, "trackers[1]"),
    ]
    assert caught.value.key == "nam"


def test_each_mistake_is_a_line_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("many.yaml").write_text(MANY)
    assert main(["run", "many.yaml"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in told] == [
        f"many.yaml:{line}" for line in (1, 2, 3, 5, 6, 6, 7, 8, 9)
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "many.yaml"]


SOUND = """\
name: one
trials: 3
trainable: ppo
metric: episode_reward_mean
mode: max
config: {env: CartPole-v1}
space: {lr: {loguniform: [1e-5, 1e-2]}}
stop: {training_iteration: 2}
"""


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        (("metric:", "metrc:"), ["metrc"]),
        (("mode: max", "direction: maximize"), ["direction"]),
        (("trials: 3", "trials: .nan"), ["trials"]),
        (("[1e-5, 1e-2]", "[.nan, .inf]"), ["space.lr.loguniform[0]", "space.lr.loguniform[1]"]),
        (("[1e-5, 1e-2]", "*a"), ["space.lr.loguniform"]),
        (
            ("stop: {", "stop: {a: x, b: {}, plateau: {patience: 0}, "),
            ["stop.a", "stop.b", "stop.plateau.patience"],
        ),
        (
            ("space: {", "initial: [{lr: 3}, {m: 1}]\nspace: {env: 3, "),
            ["config.env", "initial[0].lr", "initial[1].m"],
        ),
    ],
)
def test_one_mistake_is_told_once_and_hides_no_other(
    change: tuple[str, str], keys: list[str]
) -> None:
    with pytest.raises(BadConfig) as caught:
        parse(SOUND.replace(*change) + "seed: -1\n", "one.yaml")
    assert [key for _, key in lines_of(caught.value)] == [*keys, "seed"]


def test_a_single_mistake_is_an_error_of_its_own() -> None:
    with pytest.raises(BadConfig) as caught:
        parse(SOUND.replace("trials: 3", "trials: 0"), "one.yaml")
    assert not isinstance(caught.value, Mistakes)


def test_no_mistake_follows_from_another() -> None:
    text = SOUND.replace("space: {lr", "space: {lr: {unform: [0, 1]}, mr")
    text = text.replace("stop: {training_iteration: 2}", "stop: 3") + (
        "initial: [{lr: 0.1}]\nforbid: ['lr > 0.1']\nscheduler: asha\n"
    )
    with pytest.raises(BadConfig) as caught:
        prepare.prepare_text(text, "one.yaml", ())
    assert [key for _, key in lines_of(caught.value)] == ["space.lr.unform", "stop"]


def test_all_mistakes_in_the_settings_of_a_trainer_are_told() -> None:
    config = {"env": "CartPole-v1", "lamda": 0.9, "gamma": 2.0, "num_workers": -1}
    with pytest.raises(ConfigErrors) as caught:
        PPO.check_config(config)
    assert [error.place for error in caught.value.mistakes] == ["lamda", "num_workers", "gamma"]
    text = SOUND.replace("CartPole-v1", "CartPole-v1, lamda: 0.9, gamma: 2.0")
    with pytest.raises(BadConfig) as of_spec:
        prepare.prepare_text(text, "one.yaml", ())
    assert lines_of(of_spec.value) == [(6, "config.lamda"), (6, "config.gamma")]


def test_settings_and_names_of_results_are_checked_beside_other_mistakes() -> None:
    text = SOUND.replace("[1e-5, 1e-2]", "[1, .nan]").replace("training_iteration", "trainings")
    text = text.replace("CartPole-v1", "CartPole-v1, lamda: 0.9, gamma: 2.0")
    with pytest.raises(BadConfig) as caught:
        prepare.prepare_text(text, "one.yaml", ())
    assert lines_of(caught.value) == [
        (6, "config.lamda"),
        (6, "config.gamma"),
        (7, "space.lr.loguniform[1]"),
        (8, "stop.trainings"),
    ]


@pytest.mark.parametrize(
    ("mode", "stop", "reached", "at_most"),
    [
        ("min", "{loss: 0.1}", {}, {"loss": 0.1}),
        ("max", "{loss: 0.1}", {"loss": 0.1}, {}),
        ("min", '{loss: {">=": 9}}', {"loss": 9}, {}),
        ("min", "{training_iteration: 5}", {"training_iteration": 5}, {}),
        ("max", "{cost: 5, loss: 1}", {"loss": 1}, {"cost": 5}),
    ],
)
def test_a_stop_on_what_is_compared_is_on_the_side_that_is_better(
    mode: str, stop: str, reached: dict[str, float], at_most: dict[str, float]
) -> None:
    text = (
        f"{{name: s, trials: 1, trainable: ppo, metric: loss, mode: {mode}, "
        f"objectives: {{cost: min}}, space: {{}}, stop: {stop}}}"
    )
    found = parse(text, "s.yaml").stop
    assert (dict(found), found.at_most) == (reached, at_most)
    assert parse(text.replace(stop, str(found.to_spec()).replace("'", '"')), "s.yaml").stop == found


def test_a_misspelt_module_has_its_line_and_the_nearest_module(tmp_path: Path) -> None:
    (tmp_path / "my_trainer.py").touch()
    text = MANY.replace("tests.support.quadratic:Quadratik", "my_trianer:Thing")
    said = (
        r"many\.yaml:3: trainable: there is no module 'my_trianer' .*; did you mean 'my_trainer'\?"
    )
    with pytest.raises(Mistakes, match=said):
        prepare.prepare_text(text, "many.yaml", (str(tmp_path),))


def test_a_key_of_the_spec_that_is_indented_below_space_is_recognized() -> None:
    text = MANY.replace("{unifrom: [0, 1]}}", "1, stop: {training_iteration: 3}}")
    said = r"6: space\.stop: the kind .*; to set the spec's key stop, do not indent it below space"
    with pytest.raises(Mistakes, match=said):
        prepare.prepare_text(text, "many.yaml", ())


def test_a_setting_that_is_missing_is_described() -> None:
    text = "{trials: 1, trainable: ppo, metric: m, mode: max, space: {lr: 0.1}, config: {gamma: 1}}"
    with pytest.raises(
        BadConfig, match=r"config\.env: is missing; add this key: registered id, package"
    ):
        prepare.prepare_text(text, "one.yaml", ())
