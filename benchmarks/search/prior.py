"""Create the file of the searchers' prior from tables of learning curves.

    python -m benchmarks.search.prior FILE.npz [FILE.npz …]

Settings of a table are converted to coordinates, and its scores to the share of settings that each
one beats. The file replaces that of the package. A game is named by its environment if the table
has one, otherwise as in the table.
"""

import argparse
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from sweep.searchers._shared.prior import games
from sweep.searchers._shared.prior.games import COLUMNS, FILE
from sweep.spec.space.expressions import Expression

#: Our setting → name in a table of the same setting → expression of our value.
READ_AS: Mapping[str, Mapping[str, str]] = {
    "lr": {"learning_rate": "learning_rate"},
    "gamma": {"one_minus_gamma": "1 - one_minus_gamma"},
    "lambda_": {"one_minus_lambda": "1 - one_minus_lambda", "gae_lambda": "gae_lambda"},
    "clip_param": {"clip": "clip", "clip_eps": "clip_eps"},
    "entropy_coeff": {"entropy": "entropy", "ent_coef": "ent_coef"},
    "vf_loss_coeff": {"vf_coeff": "vf_coeff", "vf_coef": "vf_coef"},
    "grad_clip": {"max_grad_norm": "max_grad_norm"},
    "num_sgd_iter": {"epochs": "epochs"},
    "model.hidden": {"width": "width"},
    "model.activation": {"relu": "'relu' if relu == 1 else 'tanh'"},
    "observation_filter": {"norm_obs": "'MeanStdFilter' if norm_obs == 1 else 'NoFilter'"},
    "lr_schedule": {"anneal": "'linear' if anneal == 1 else 'constant'"},
    "model.log_std_init": {"log_std": "log_std"},
    "replay_batch_size": {"buffer_batch_size": "buffer_batch_size"},
    "exploration_config.final_epsilon": {"target_epsilon": "target_epsilon"},
}


def our_settings(names: Collection[str]) -> dict[str, str]:
    """Return our setting → expression, for settings that a table has under other names.

    Args:
        names: names of the settings of a table, which the expressions may use.
    """
    return {
        ours: expression
        for ours, tables in READ_AS.items()
        for name, expression in tables.items()
        if name in names and ours not in names
    }


def other_games(game: str, trainable: str) -> list[str]:
    """Return the trainable's games in the package, except `game` under any name."""
    plain = game.lower().replace("_", "").replace("-", "")
    return [
        f"{trainable}/{other.name}"
        for other in games.known(trainable)
        if other.name.split("-")[0].lower() not in plain
    ]


def main() -> None:
    """Read the tables and write the file of the package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("tables", type=Path, nargs="+", help="files of learning curves")
    parser.add_argument(
        "--out", type=Path, default=Path(games.__file__).with_name(FILE), help="file"
    )
    arguments = parser.parse_args()
    made: dict[str, NDArray[Any]] = {}
    for path in arguments.tables:
        with np.load(path, allow_pickle=False) as table:
            for name in sorted(key.split("/")[0] for key in table.files if key.endswith("/space")):
                made |= _game(table, name)
    np.savez_compressed(arguments.out, allow_pickle=False, **made)
    size = arguments.out.stat().st_size
    print(f"{arguments.out}: {size} bytes, {len(made) // 2} games")  # noqa: T201


def _game(table: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    trainable = str(table[f"{name}/algorithm"])
    game = str(table[f"{name}/env"]) if f"{name}/env" in table else name
    final = table[f"{name}/final"]
    scores = np.where(np.isnan(final), np.nanmin(final), final).mean(axis=1)
    space = json.loads(str(table[f"{name}/space"]))
    ours = our_settings(space)
    values = [_column(table[f"{name}/hp/{own}"]) for own in space]
    rows = [dict(zip(space, row, strict=True)) for row in zip(*values, strict=True)]
    points = [
        [column.coordinate(_value(column.key, ours, row)) for column in COLUMNS[trainable]]
        for row in rows
    ]
    # Equal scores get equal places.
    beaten = (rankdata(scores) - 0.5) / len(scores) - 0.5
    return {
        f"{trainable}/{game}/points": np.clip(points, 0, 1).astype(np.float16),
        f"{trainable}/{game}/places": beaten.astype(np.float16),
    }


def _column(values: NDArray[Any]) -> list[Any]:
    """Return the values of a setting; text is JSON."""
    raw: list[Any] = values.tolist()
    return [json.loads(value) for value in raw] if values.dtype.kind == "U" else raw


def _value(key: str, ours: Mapping[str, str], row: Mapping[str, Any]) -> Any:
    """Return our value of a setting in a row. Returns NaN if the table lacks the setting."""
    if key in ours:
        return Expression(ours[key]).evaluate(row)
    return row.get(key, np.nan)


if __name__ == "__main__":
    main()
