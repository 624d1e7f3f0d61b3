"""Check the names of results in a spec against those that the trainable declares."""

from collections.abc import Collection

from sweep.core.errors import BadConfig, Gathering, KeyPath
from sweep.driver.start.creation import samples
from sweep.spec import SweepSpec
from trainables.core.legacy_names import nearest_results
from trainables.core.results import WHOSE, has_name
from trainables.errors import shorten
from trainables.trainable import Trainable


def check(spec: SweepSpec, trainable: type[Trainable], time_attr: str | None) -> None:
    """Raise BadConfig for names in the spec of results that the trainable never reports.

    It must report a name at one of some sampled points at least. `time_attr` is the scheduler's;
    None to leave it out. Nothing is checked if the trainable does not declare its results.
    """
    names: set[str] = set()
    for point in samples.draw_samples(spec.space, spec.seed):
        config = samples.complete_config(
            trainable, spec, spec.space.nest(point.settings, spec.config)
        )
        of_one = trainable.result_names(config)
        if of_one is None:
            return
        names.update(of_one)
    found = Gathering(spec.source)
    for path, name in names_of(spec, time_attr).items():
        if not has_name(names, name):
            found.add(_refusal(spec, path, name, names), str(path[0]))
    found.check()


def check_names_separately(
    spec: SweepSpec, trainable: type[Trainable], time_attr: str | None, gathering: Gathering
) -> None:
    """Add wrong names of results to `gathering` although other keys of the spec have mistakes.

    Names that depend on settings are skipped, and so are those below a refused key. `time_attr` is
    the scheduler's; None to leave it out.
    """
    before = gathering.refused
    names = trainable.result_names({"env": "any"}) or ()
    for path, name in names_of(spec, time_attr).items():
        of_settings = "/" in name or name.startswith("agent_")
        if path[0] not in before and names and not of_settings and not has_name(names, name):
            gathering.add(_refusal(spec, path, name, names), str(path[0]))


def names_of(spec: SweepSpec, time_attr: str | None) -> dict[KeyPath, str]:
    """Return key path → name for each result that `spec` uses: ``("stop", "loss")`` → ``"loss"``.

    `time_attr` is the scheduler's; None to leave it out.
    """
    named: dict[KeyPath, str] = {("metric",): spec.metric}
    named |= {("objectives", name): name for name in spec.objectives}
    named |= {("constraints", name): name for name in spec.constraints}
    named |= {("stop", name): name for name in (*spec.stop, *spec.stop.at_most)}
    if spec.stop.plateau is not None and spec.stop.plateau.metric != spec.metric:
        named["stop", "plateau", "metric"] = spec.stop.plateau.metric
    if time_attr is not None:
        named["scheduler", "time_attr"] = time_attr
    return named


def _refusal(spec: SweepSpec, path: KeyPath, name: str, names: Collection[str]) -> BadConfig:
    """Return the error that no result in `names` is called `name`, with similar names as a hint."""
    near = nearest_results(name, [one for one in names if one not in WHOSE])
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else ""
    first = name.partition("/")[0]
    if first == "evaluation" and not any(one.startswith("evaluation/") for one in names):
        hint = (
            "set evaluation_interval in config, for example to 10, to have results of evaluations"
        )
    elif first == "custom_metrics":
        hint = (
            "such results are recorded by callbacks, which config does not set: see "
            "docs/callbacks.md"
        )
    few = sorted(one for one in names if one.startswith("episode_"))
    allowed = f"one of its results, such as {', '.join(few)} (docs/metrics.md)"
    problem = f"{spec.trainable} has no result {shorten(name)}"
    return spec.source.refuse(path, name, allowed, hint, problem)
