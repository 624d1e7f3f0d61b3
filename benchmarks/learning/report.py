"""The page docs/learning.md and its picture: returns, compared with published ones."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from benchmarks.learning import finished, stored, updates
from benchmarks.learning.rows import ROWS, Row

DOCS = Path(__file__).resolve().parents[2] / "docs"
SEARCHED = Path(__file__).with_name("searched") / "results.jsonl"
RESAMPLES = 10_000
"""Resamples of a bootstrap interval."""
#: Number of seeds with which found and tuned settings are compared.
HELD_OUT = 10
Floats = NDArray[np.float64]


def interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean of (S,) seeds, a function of the values."""
    drawn = np.random.default_rng(0).choice(values, (RESAMPLES, len(values)))
    low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def interquartile_mean(values: Floats) -> float:
    """Return the mean of the middle half of (S,) seeds (Agarwal et al. 2021).

    A quarter of the weight is removed at each end; a seed may be removed partly.
    """
    ordered = np.sort(values)
    edges = np.arange(len(values) + 1) / len(values)
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    return float((ordered * weights).sum() / weights.sum())


Runs = dict[str, list[dict[str, Any]]]
"""Name of a row → its runs."""


def write(runs: Sequence[dict[str, Any]], references: Sequence[dict[str, Any]] = ()) -> None:
    """Write the page and the picture.

    Args:
        runs: of our algorithms.
        references: runs of Stable-Baselines3.
    """
    ours, others = _by_row(runs), _by_row(references)
    rows = [row for row in ROWS if ours[row.name]]
    lines = [_line(row, ours[row.name], others[row.name]) for row in rows]
    text = TEXT.format(
        table="\n".join(lines),
        updates="\n".join(update_lines()),
        searched="\n".join(searched()),
        stored="\n".join(from_files()),
    )
    (DOCS / "learning.md").write_text(text, encoding="utf-8")
    draw(rows, ours, others, DOCS / "learning.png")


def searched() -> list[str]:
    """Return the lines of the table of searches: found settings, compared with tuned ones."""
    runs = finished.read(SEARCHED)
    lines = []
    for row in ROWS:
        means = {who: _means(runs, row.name, who) for who in ("found", "tuned")}
        if min(map(len, means.values())) < HELD_OUT:  # some have not been trained yet
            continue
        low, high = difference(means["found"], means["tuned"])
        settings = next(
            r["config"] for r in runs[::-1] if (r["row"], r["who"]) == (row.name, "found")
        )
        cells = (
            f"{row.title}, {row.algorithm.partition(':')[0]}",
            *(
                f"{means[who].mean():.1f} ± {means[who].std(ddof=1):.1f}"
                for who in ("found", "tuned")
            ),
            f"{low:.1f} to {high:.1f}",
            "yes" if high >= 0 else "no",
            _as_text(settings),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def from_files() -> list[str]:
    """Return the lines of the table of learning from files alone."""
    made = finished.by_version(stored.RESULTS)
    lines = []
    for row in stored.ROWS:
        runs = [run for key, run in made.items() if key[:2] == (row.name, stored.version(row))]
        if len(runs) > 1:
            lines.append(_stored_line(row, runs))
    return lines


def update_lines() -> list[str]:
    """Return the lines of the table of updates: distances of networks from the reference's."""
    results: dict[str, dict[str, float]] = json.loads(updates.RESULTS.read_text("utf-8"))
    return [
        f"| {name} | {', '.join(f'{network} {apart:.0e}' for network, apart in networks.items())} |"
        for name, networks in results.items()
    ]


def _stored_line(row: stored.StoredRow, runs: Sequence[dict[str, Any]]) -> str:
    means = np.array([run["mean"] for run in runs])
    bests = {mode: np.array([max(run[mode]) for run in runs]) for mode in ("sampled", "greedy")}
    above = {mode: interval(means - row.share * best) for mode, best in bests.items()}
    better = [mode for mode, (low, _) in above.items() if low > 0]
    words = ("no", "than sampling" if "sampled" in better else "than greedy", "yes")
    low, high = interval(means)
    cells = (
        stored.WRITERS[row.writers].title,
        row.by,
        str(len(means)),
        *(f"{best.mean():.1f}" for best in bests.values()),
        f"**{means.mean():.1f}** ± {means.std(ddof=1):.1f}",
        f"{low:.1f} to {high:.1f}",
        f"{means.min():.1f}",
        *(f"{low:.0f} to {high:.0f}" for low, high in above.values()),
        words[len(better)],
    )
    return f"| {' | '.join(cells)} |"


def _means(runs: Sequence[dict[str, Any]], row: str, who: str) -> Floats:
    """Return the means of all seeds with the newest settings of ``found`` or ``tuned``."""
    own = [run for run in runs if (run["row"], run["who"]) == (row, who)]
    return np.array([run["mean"] for run in own if run["config"] == own[-1]["config"]])


def _as_text(settings: dict[str, Any]) -> str:
    shown = {key: value for key, value in settings.items() if key not in OMITTED}
    return ", ".join(
        f"`{key}` {value:.3g}" if isinstance(value, float) else f"`{key}` {value}"
        for key, value in shown.items()
    )


#: Keys of a trial's settings that the table omits.
OMITTED = ("env", "schedule_timesteps", "native_vector_env", "learner")


def _by_row(runs: Sequence[dict[str, Any]]) -> Runs:
    rows = defaultdict(list)
    for run in runs:
        rows[run["row"]].append(run)
    return rows


def difference(ours: Floats, reference: Floats) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of our mean minus the mean of the reference."""
    stream = np.random.default_rng(0)
    means = [
        stream.choice(seeds, (RESAMPLES, len(seeds))).mean(axis=1) for seeds in (ours, reference)
    ]
    low, high = np.percentile(means[0] - means[1], [2.5, 97.5])
    return float(low), float(high)


def _comparison(row: Row, means: Floats, reference: Floats) -> tuple[str, str, str]:
    """Return three cells: the goal, the answer to whether it is reached, and returns of others."""
    if row.goal is not None:
        answer = "yes" if means.mean() >= row.goal else f"no: {row.reason}" if row.reason else "no"
        others = [row.published]
        if len(reference) > 1:
            reached = f"{reference.mean():.1f} ± {reference.std(ddof=1):.1f}"
            others.append(f"{reached} (Stable-Baselines3, {len(reference)} seeds)")
        return f"{row.goal:g}", answer, "; ".join(others)
    if not len(reference):
        return "no worse than the reference", "not known yet", row.published
    spread = f" ± {reference.std(ddof=1):.1f}" if len(reference) > 1 else ""
    source = f"Stable-Baselines3, seeds so far: {len(reference)}"
    answer = "not known yet: seeds are missing"
    missing = row.seeds - len(reference)
    if missing > 0 and len(means) >= row.seeds and row.highest is not None:
        highest = (reference.sum() + missing * row.highest) / row.seeds
        source += f"; the mean of {row.seeds} can be {highest:.1f} at most"
        answer = "yes, for any returns of the missing seeds" if means.mean() >= highest else answer
    elif min(len(means), len(reference)) >= row.seeds:
        low, high = difference(means, reference)
        source = f"Stable-Baselines3, {len(reference)} seeds; difference {low:.0f} to {high:.0f}"
        answer = "yes" if means.mean() >= reference.mean() else "alike" if high >= 0 else "no"
    return "no worse than the reference", answer, f"{reference.mean():.1f}{spread} ({source})"


def _line(row: Row, runs: Sequence[dict[str, Any]], references: Sequence[dict[str, Any]]) -> str:
    means = np.array([run["mean"] for run in runs])
    low, high = interval(means)
    spread = means.std(ddof=1) if len(means) > 1 else 0.0
    cells = (
        row.title,
        row.algorithm.partition(":")[0],
        f"{row.steps:,}",
        str(len(means)),
        f"**{means.mean():.1f}** ± {spread:.1f}",
        f"{interquartile_mean(means):.1f}",
        f"{low:.1f} to {high:.1f}",
        f"{means.min():.1f}",
        *_comparison(row, means, np.array([run["mean"] for run in references])),
    )
    return f"| {' | '.join(cells)} |"


def draw(rows: Sequence[Row], ours: Runs, references: Runs, path: Path) -> None:
    """Draw a small plot for each row: the returns of each seed during training, and their mean."""
    mpl.use("Agg")
    from matplotlib import pyplot

    columns = 3
    lines = -(-len(rows) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(10, 2.6 * lines), squeeze=False)
    for axis in axes.flat[len(rows) :]:
        axis.set_visible(False)
    for axis, row in zip(axes.flat, rows, strict=False):
        for runs, color in ((references[row.name], "tab:orange"), (ours[row.name], "tab:blue")):
            _curves(axis, runs, color)
        if row.goal is not None:
            axis.axhline(row.goal, color="tab:green", linewidth=0.8, linestyle="--")
        name = row.algorithm.partition(":")[0]
        axis.set_title(f"{row.title}, {name}", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.set_xlabel("thousand steps", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _curves(axis: Any, runs: Sequence[dict[str, Any]], color: str) -> None:
    curves = [np.array(run["curve"], dtype=float) for run in runs]
    for curve in curves:
        axis.plot(curve[:, 0] / 1e3, curve[:, 1], color=color, alpha=0.25, linewidth=0.8)
    if curves:
        steps = curves[0][:, 0]
        values = np.stack([np.interp(steps, curve[:, 0], curve[:, 1]) for curve in curves])
        axis.plot(steps / 1e3, values.mean(axis=0), color=color, linewidth=1.6)


TEXT = """# Learning

sweep's algorithms reach the goals of nearly all rows of this table; a goal is a return of another
library, or near such a return. Under each seed, a policy is trained for the stated number of
environment steps and then plays 100 fresh episodes (20 of Pong) greedily; the score of the seed is
the mean return. The table shows the mean and standard deviation over the seeds, the interquartile
mean (IQM), the 95 % bootstrap interval of the mean, and the score of the worst seed. `make learn`
repeats the training in hours, and continues after an interruption; `python -m benchmarks.learning
--only cartpole-ppo` trains one row of `benchmarks/learning/rows.py`.

| environment | algorithm | steps | seeds | return | IQM | 95 % | worst | goal | reached | others |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{table}

![Returns during training: each seed, and their mean; dashed: the goal; orange:
Stable-Baselines3.](learning.png)

*zoo* is [rl-baselines3-zoo](https://github.com/DLR-RM/rl-baselines3-zoo): one tuned run,
deterministic policy. *SLM Lab* is the [SLM Lab benchmark](https://github.com/kengz/SLM-Lab): four
seeds, returns during training. The returns of Stable-Baselines3 were measured for this page with
the settings of rl-baselines3-zoo. *alike* means that sweep's mean is lower, but the 95 % interval
of the difference contains zero. For PPO on Acrobot and DQN on CartPole, sweep's settings are the
best of seven and nineteen candidates, respectively, chosen under seeds that no row uses. DQN on
CartPole was trained under ten more seeds after the planned ten had reached a mean of 466. Because a
return in Pong is at most 21, a row of Pong can be decided before Stable-Baselines3 has been trained
under all seeds.

## Update by update

From the same weights, settings, batches and noise, sweep and Stable-Baselines3 make nearly the same
updates. The table shows the distance between the weights of both libraries after 20 updates,
relative to the total change in the weights. PPO and A2C do not normalise advantages, A2C uses Adam,
and DQN is neither double nor n-step.

| algorithm | relative distance |
| --- | --- |
{updates}

    python -m benchmarks.learning.updates

## From files alone

For each of five seeds, PPO trains policies (*poor* policies are stopped early), which write whole
episodes: 5,000 steps on CartPole, 10,000 on Pendulum. An algorithm then learns from the files
without an environment (`iql` and `dqn` with 5,000 updates) and plays 100 fresh episodes greedily.
*Sampling* is the return of the seed's best policy while writing the files, and *greedy* is the same
policy's return over 100 greedy episodes; both are means over the seeds. The two columns before
*better* show the 95 % bootstrap intervals of the return minus *sampling*, and of the return minus
*greedy*; with files of a trained policy, of the return minus 90 % of each.

| files of | algorithm | seeds | sampling | greedy | return | 95 % | worst | above | | better |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{stored}

    python -m benchmarks.learning.stored

## Searched, not tuned

A search of 16 trials often finds settings as good as the tuned settings above. The ranges of the
search span at least a factor of ten, and the middle of a range is not the tuned value
(`benchmarks/learning/searched/*.yaml`). The three best trials are retrained under three seeds; the
best of the three and the tuned settings are then trained under ten seeds that the search did not
use. The tuned settings of Acrobot and of CartPole dqn were chosen under some of these seeds and so
have an advantage. *As good* means that the 95 % interval of the difference is not entirely below
zero.

| environment | found | tuned | difference, 95 % | as good | found settings |
| --- | --- | --- | --- | --- | --- |
{searched}

    python -m benchmarks.learning.searched
"""
