"""docs/cluster.md: each step's commands, run on this machine's processes, for one sweep."""

import importlib.util
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.cluster import QUIET
from tests.support.command_line import environment
from tests.support.ports import free_port
from tests.support.ray_cluster import RAY, SMALL, in_session, kill_session
from tests.support.waiting import wait_until

PAGE = (Path(__file__).parents[1] / "docs/cluster.md").read_text(encoding="utf-8")


def blocks(step: str, language: str = "sh") -> list[list[str]]:
    """The commands of a step, block by block."""
    (body,) = re.findall(rf"^## {step}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    found = re.findall(rf"^```{language}\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    return [block.splitlines() for block in found]


class Desk:
    """A folder in which commands are typed, and the terminals that stay open."""

    def __init__(self, folder: Path, scratch: str) -> None:
        self.folder = folder
        self.env = {**environment(), **QUIET, "DASK_CONFIG": str(folder / "dask")}
        self.open: list[subprocess.Popen[bytes]] = []
        self.port = str(free_port())
        self.scratch = scratch

    def type(self, line: str) -> str:
        """Run a command to its end, or leave it running; `node-1` is this machine."""
        line = re.sub("8786|6379", self.port, line).replace("node-1", "127.0.0.1")
        program, *words = shlex.split(line.replace("~", str(self.folder)))
        if program == "dask":
            host = ["--host", "127.0.0.1"] if "--protocol" in words else []
            return self._leave_open(sys.executable, "-m", "dask", *words, *host, "--no-dashboard")
        if line.startswith("ray start"):
            return self._leave_open(*RAY, *words, "--temp-dir", self.scratch, *SMALL)
        own = {"sweep": [sys.executable, "-m", "sweep.cli.main"], "ray": RAY}
        command = [*own.get(program, [program]), *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr, done.stdout)
        return done.stdout

    def _leave_open(self, *command: str) -> str:
        with (self.folder / "open.txt").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.open.append(process)
        return ""

    def leave(self) -> None:
        """Close the terminals that are open."""
        for process in self.open:
            kill_session(process.pid)
            process.wait()
        self.open.clear()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as scratch:
        opened = Desk(tmp_path, scratch)
        yield opened
        opened.leave()


def certified(desk: Desk) -> list[str]:
    """Make the page's certificate and say where it lies; what comes next on the page."""
    certificate, tls = blocks("Several machines")
    for line in certificate:
        desk.type(line)
    (configuration,) = blocks("Several machines", "yml")
    (desk.folder / "dask").mkdir()
    text = "\n".join(configuration).replace("/shared", str(desk.folder))
    (desk.folder / "dask/tls.yaml").write_text(text)
    return tls


@pytest.mark.proof
def test_each_steps_commands_lead_one_sweep_from_a_laptop_to_a_cluster(desk: Desk) -> None:
    (laptop,), (shared,), (local,) = map(
        blocks, ("One machine", "Two machines that share a folder", "Workers of a Dask cluster")
    )
    for line in (*laptop, *shared, *local):
        desk.type(line)
    desk.leave()
    for line in certified(desk):
        desk.type(line)
    ((doctor,),) = blocks(re.escape("Is everything there?"))
    assert "with the same versions and access" in " ".join(desk.type(doctor).split())
    past = sweeps.history(Folder(desk.folder / "sweeps", "demo"))
    assert (past.searched_count, past.ended) == (14, "finished")
    assert past.pool == f"dask@tls://127.0.0.1:{desk.port}"


@pytest.mark.proof
def test_the_commands_for_a_ray_cluster_lead_a_sweep_there(desk: Desk) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed; pip install 'sweep-rl[ray]'")
    desk.env = {name: of for name, of in desk.env.items() if not name.startswith("RAY_")}
    desk.env["HOME"] = str(desk.folder)
    token, (head, *sweep) = blocks("Workers of a Ray cluster")
    for line in ("sweep init demo", "sweep run demo/space.yaml --trials 1", *token):
        desk.type(line)
    assert (desk.folder / ".ray/auth_token").stat().st_mode & 0o777 == 0o600
    desk.type(head)
    wait_until(lambda: bool(in_session(desk.open[0].pid, "ray::")))
    for line in sweep:
        desk.type(line)
    past = sweeps.history(Folder(desk.folder / "sweeps", "demo"))
    assert (past.searched_count, past.ended) == (14, "finished")
    assert past.pool == f"ray@127.0.0.1:{desk.port}"


#: SLURM's commands: a job is a copy of its script, as the given one is removed at once; `sh` runs
#: it in a session of its own, as a node does.
SLURM = {
    "sbatch": 'cp "$1" "$JOBS/$$.sh"\nsetsid sh "$JOBS/$$.sh" >> "$JOBS/log" 2>&1 &\n'
    'echo "Submitted batch job $!"',
    "scancel": 'for job; do echo "$job" >> "$JOBS/cancelled"; kill -KILL "-$job"; done',
}


@pytest.mark.slow
def test_the_program_for_slurm_starts_jobs_whose_workers_run_a_sweep(desk: Desk) -> None:
    certified(desk)
    for line in ("sweep init demo", "sweep run demo/space.yaml --trials 1"):
        desk.type(line)
    jobs = desk.folder / "jobs"
    jobs.mkdir()
    for name, does in SLURM.items():
        (jobs / name).write_text(f"#!/bin/sh\n{does}\n")
        (jobs / name).chmod(0o755)
    desk.env |= {"JOBS": str(jobs), "PATH": f"{jobs}:{desk.env['PATH']}"}
    (program,) = blocks("SLURM", "python")
    here = f'"port": {desk.port}, "host": "127.0.0.1"'
    text = "\n".join(program).replace("jobs=16", "jobs=2").replace('"port": 8786', here)
    (desk.folder / "slurm.py").write_text(text)
    holder = subprocess.Popen(
        [sys.executable, "slurm.py"],
        cwd=desk.folder,
        env=desk.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    desk.open.append(holder)
    assert holder.stdout is not None
    said: list[str] = []
    while not said or not said[-1].startswith("sweep resume"):
        said.append(holder.stdout.readline().decode())
        assert said[-1], "the program has ended"
    *script, command = said
    asked = {line.removeprefix("#SBATCH").strip() for line in script if line.startswith("#SBATCH")}
    assert {"-n 1", "--cpus-per-task=1", "--mem=4G", "-t 04:00:00"} <= asked
    (worker,) = [shlex.split(line) for line in script if "dask_worker" in line]
    assert f"tls://127.0.0.1:{desk.port}" in worker
    for option, value in (("--nthreads", "1"), ("--lifetime", "230m"), ("--protocol", "tls")):
        assert worker[worker.index(option) + 1] == value
    desk.type(f"{command.strip()} --trials 4")
    past = sweeps.history(Folder(desk.folder / "sweeps", "demo"))
    assert (past.searched_count, past.ended) == (4, "finished")
    assert past.pool == f"dask@tls://127.0.0.1:{desk.port}"
    holder.communicate(b"\n")
    assert holder.returncode == 0
    cancelled = (jobs / "cancelled").read_text().split()
    assert len(cancelled) == 2
    wait_until(lambda: not any(psutil.pid_exists(int(job)) for job in cancelled))
