"""Commands that check something: validate, schema, check-env, doctor, verify, sync."""

from pathlib import Path
from typing import Any

import click

from sweep.cli import completion, options

#: Exit code if a sweep is damaged.
EXIT_DAMAGED = 6
#: Exit code if a tracker did not receive everything.
EXIT_UNSENT = 4
#: Exit code if something that a sweep needs is unusable.
EXIT_UNUSABLE = 2
#: Default time limits of `sync` for trackers, and of `doctor` for each part, in seconds.
PATIENCE_S, ANSWER_S = 60.0, 15.0


@click.command(cls=options.SpaceCommand)
@click.argument("space", shell_complete=completion.spaces)
@options.override_options
@options.jobs_option
@click.option(
    "--pool",
    metavar="NAME",
    help="The sweep's pool; with stack, two trials are tested in one program; default: loky.",
)
@click.option(
    "--for",
    "longest_s",
    type=click.FloatRange(min=0, min_open=True),
    callback=options.check_waitable,
    default=60.0,
    metavar="SECONDS",
    help="Time limit for the test of the trainable; steps that it does not reach are listed, but "
    "are no error; default: 60.",
)
@options.sweep_options
def validate(space: str, **given: Any) -> None:
    """Check a spec, its cost, and whether its trainable works.

    The trainable is trained for a short time, saved and restored, and its results are compared.
    Nothing is written.
    """
    from sweep import pools
    from sweep.cli import check_tables
    from sweep.driver.start import prepare
    from sweep.operations.rehearsal import validate as preview

    with options.open_answer(given["as_json"]) as answer:
        with options.announcing_imports() as parsed:
            resolved, _text = prepare.prepare(space, options.overrides(given), parsed)
        pool = pools.choose_pool(options.pool({**given, "address": None}))
        for remark in (*resolved.spec.source.remarks, *prepare.fixed_lists(resolved.spec)):
            options.say(remark)
        learnt = prepare.prior_remarks(resolved, given["root"])
        with options.progress() as (show, every_s):
            trying = given["longest_s"], show, every_s, pool
            seen = preview.validation(resolved, given["jobs"], *trying)
        answer({**seen, "prior": learnt}, check_tables.preview)


@click.command()
def schema() -> None:
    """Print the JSON Schema of specs, for editors.

    It includes the options of all installed plugins and the settings of all installed trainables.
    Editors check and complete a spec with the file sweep.schema.json if the spec begins with
    `# yaml-language-server: $schema=sweep.schema.json`, as after `sweep init`. To write or update
    the file, run `sweep schema > sweep.schema.json`.
    """
    from sweep.operations import schema as schemas

    with options.open_answer(as_json=False) as answer:
        answer(schemas.text(), str.rstrip)


@click.command("check-env")
@click.argument("env")
@click.option(
    "--env-config", metavar="YAML", help="The environment's arguments, such as '{g: 9.0}'."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=2000,
    metavar="N",
    help="Number of steps in each speed measurement; default: 2000.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    metavar="S",
    help="Time limit for one call of the environment, in seconds; default: 60.",
)
@options.json_option
def check_env(env: str, **given: Any) -> None:
    """Measure an environment: speed, faults, exactness.

    The exactness level says how much of the environment's state a checkpoint contains.
    """
    from sweep.cli import check_tables
    from sweep.core import plugins
    from trainables.envs import check

    with options.open_answer(given["as_json"]) as answer:
        plugins.add_paths([str(Path.cwd())])
        config = _read_env_config(given["env_config"])
        answer(check.check(env, config, given["steps"], given["timeout"]), check_tables.env_report)


def _read_env_config(text: str | None) -> dict[str, Any]:
    """Parse the YAML of the option ``--env-config``, by default {}.

    Raises BadConfig if it is no mapping, or no valid YAML.
    """
    from sweep.core.errors import BadConfig, Place
    from sweep.spec import yaml_source

    said = f"--env-config {text}"
    value = {} if text is None else yaml_source.read_value(text, said, ("env_config",))
    if not isinstance(value, dict):
        raise BadConfig(
            "--env-config", value, "a mapping", "for example '{g: 9.0}'", place=Place(said)
        )
    return value


@click.command()
@click.argument("name", required=False, shell_complete=completion.names)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="Address of a Dask cluster to check, such as tls://node-1:8786, or with --pool ray of a "
    "Ray cluster, such as node-1:6379.",
)
@click.option("--pool", metavar="NAME", help="Kind of the cluster: dask or ray; default: dask.")
@options.service_options
@options.wait_option(ANSWER_S, "an answer from each service")
@options.sweep_options
def doctor(name: str | None, wait: float, **given: Any) -> int:
    """Check this machine and the services that a sweep needs.

    With NAME, also check the services of that sweep. Each problem is printed with advice.
    Everything that the check writes is removed, except a new signing key if a cluster
    is checked. Exit code 2: something is unusable.
    """
    from sweep import pools
    from sweep.cli import check_tables
    from sweep.operations.doctor import examination

    with options.open_answer(given["as_json"]) as answer:
        asked = options.pool(given)
        named = examination.Services(
            "" if asked is None else pools.choose_pool(asked, "dask"),
            given["storage"] or "",
            given["checkpoints"] or "",
            given["tracking_uri"] or "",
        )
        found = examination.examine(given["root"], name, named, wait)
        answer([one._asdict() for one in found], check_tables.findings_table)
        return EXIT_UNUSABLE if any(one.level == "problem" for one in found) else 0


@click.command()
@completion.name_argument
@click.option("--repair", is_flag=True, help="Repair as much as the remaining files allow.")
@options.sweep_options
def verify(name: str, repair: bool, **given: Any) -> int:
    """Check a sweep's records and files, or repair them.

    Exit code 6: something is damaged.
    """
    from sweep.cli import check_tables
    from sweep.operations.upkeep import repair as repairing
    from sweep.operations.upkeep import verify as verifying

    with options.open_answer(given["as_json"]) as answer:
        folder = options.find_sweep(given["root"], name)
        mended = repairing.repair(folder, options.say) if repair else None
        report = verifying.verify(folder) if mended is None else mended.verification
        data = {
            "name": name,
            "checkpoints": report.checkpoints,
            "damages": [
                {key: str(getattr(damage, key)) for key in ("part", "place", "problem", "remedy")}
                for damage in report.damages
            ],
            "notes": list(report.notes),
            "repaired": [] if mended is None else list(mended.repairs),
        }
        answer(data, check_tables.damage_report)
        return EXIT_DAMAGED if report.damages else 0


@click.command()
@completion.name_argument
@options.wait_option(PATIENCE_S, "a server that does not respond")
@options.sweep_options
def sync(name: str, wait: float, **given: Any) -> int:
    """Send MLflow and Optuna the results that they still lack.

    Nothing is trained. MLflow also gets the report and the best model of a finished sweep. Exit
    code 4: not everything could be sent.
    """
    from sweep.cli import check_tables
    from sweep.driver.tracking import sync as sending
    from sweep.operations.mlflow import attaching

    with options.open_answer(given["as_json"]) as answer:
        folder = options.find_sweep(given["root"], name)
        sent = attaching.send(folder, options.say, wait)
        rows = [{"tracker": s.tracker, "sent": s.events, "missing": s.missing} for s in sent]
        whole = not sending.attachments_due(sending.tracker_context(folder))
        answer({"name": name, "trackers": rows, "attached": whole}, check_tables.sync_table)
        return 0 if whole and not any(s.missing for s in sent) else EXIT_UNSENT
