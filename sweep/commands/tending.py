"""The commands that look after what lies on the disk and what was sent: verify, sync."""

from typing import Any

import click

from sweep.commands import answering, find_sweep, json_option, root_option, say, wait_option

#: Exit code of a sweep in which something is damaged.
DAMAGED = 6
#: Exit code where a tracker could not be sent everything.
AWAY = 4
#: Seconds that `sync` waits for trackers by default.
PATIENCE_S = 60.0


@click.command()
@click.argument("name")
@click.option("--repair", is_flag=True, help="Mend what can be worked out from what is left.")
@root_option
@json_option
def verify(name: str, repair: bool, **given: Any) -> int:
    """Check every checkpoint, the ledger, its copies and files; exit code 6 tells of damage."""
    from sweep import repair as repairing
    from sweep import verify as verifying
    from sweep.show import render_damage

    with answering(given["as_json"]) as answer:
        folder = find_sweep(given["root"], name)
        done: tuple[str, ...] = ()
        if repair:
            mended = repairing.repair(folder, say)
            done, found = mended.done, mended.left
        else:
            found = verifying.verify(folder)
        data = {
            "name": name,
            "checkpoints": found.checkpoints,
            "damages": [
                {
                    "part": damage.part,
                    "place": damage.place,
                    "problem": damage.problem,
                    "remedy": damage.remedy.value,
                }
                for damage in found.damages
            ],
            "notes": list(found.notes),
            "repaired": list(done),
        }
        answer(data, render_damage.report)
        return DAMAGED if found.damages else 0


@click.command()
@click.argument("name")
@wait_option(PATIENCE_S, "a server that is away")
@root_option
@json_option
def sync(name: str, wait: float, **given: Any) -> int:
    """Send what MLflow and Optuna's tables still miss, without training; exit code 4: not all."""
    from sweep import sending
    from sweep.show import render_damage

    with answering(given["as_json"]) as answer:
        sent = sending.send(find_sweep(given["root"], name), say, wait)
        rows = [{"tracker": s.tracker, "sent": s.events, "missing": s.missing} for s in sent]
        answer({"name": name, "trackers": rows}, render_damage.sent)
        return AWAY if any(s.missing for s in sent) else 0
