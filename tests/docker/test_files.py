"""What the image and the compose files lock; each rule is seen to fail on a file that breaks it."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.command_line import REPOSITORY

DOCKER = REPOSITORY / "docker"
FILES = ("compose.yaml", "one-machine.yaml")
#: An image's tag that names one release, and the digest that says which bytes these are.
RELEASE = re.compile(r":(RELEASE\.[\dTZ-]+|\d+\.\d+[.\w-]*)@sha256:[\da-f]{64}$")
#: Variables in which a secret would stand in clear.
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|ACCESS_KEY|CREDENTIAL")


def compose(name: str) -> Any:
    return YAML(typ="safe").load(DOCKER / name)


def problems(file: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a compose file."""
    for name, service in file["services"].items():
        for problem in (
            *_unlocked(service),
            *_open(file, service),
            *_dangling(file, service),
            *_given(service),
        ):
            yield f"{name}: {problem}"


def _unlocked(service: Mapping[str, Any]) -> Iterator[str]:
    if service.get("read_only") is not True:
        yield "its root file system can be written"
    if service.get("cap_drop") != ["ALL"] or "cap_add" in service:
        yield "it has capabilities"
    if service.get("security_opt") != ["no-new-privileges:true"] or "privileged" in service:
        yield "it can become more than it is"
    if service["image"] != "sweep-rl":  # whose own user is not root
        if service.get("user") != "1000:1000":
            yield "it may run as root"
        if not RELEASE.search(service["image"]):
            yield "its image is not pinned"


def _open(file: Mapping[str, Any], service: Mapping[str, Any]) -> Iterator[str]:
    if not all(port.startswith("127.0.0.1:") for port in service.get("ports", ())):
        yield "a port is published beyond this machine"
    if "network_mode" in service and service["network_mode"] != "none":
        yield "it shares a network"
    named = service.get("networks", ())
    ways_out = [name for name in named if not file["networks"][name].get("internal")]
    if ways_out and not service.get("ports"):
        yield "it has a way out that it does not need"


def _dangling(file: Mapping[str, Any], service: Mapping[str, Any]) -> Iterator[str]:
    if not {volume.split(":")[0] for volume in service.get("volumes", ())} <= set(file["volumes"]):
        yield "a volume is not named"
    for other, how in service.get("depends_on", {}).items():
        earlier = file["services"].get(other, {})
        stays = "healthcheck" in earlier
        if stays != (how["condition"] == "service_healthy"):
            yield f"it waits for {other} in the wrong way"
    if "restart" in service and "healthcheck" not in service:
        yield "nobody sees whether it works"


def _given(service: Mapping[str, Any]) -> Iterator[str]:
    mounted = [volume.split(":")[1] for volume in service.get("volumes", ())]
    words = [*service.get("environment", {}).values(), *service["command"]]
    for path in re.findall(r"/secrets/[\w.]+", " ".join(words)):
        if path not in mounted:
            yield f"{path} is not mounted"
    for variable, value in service.get("environment", {}).items():
        if SECRET.search(variable) and not value.startswith("/secrets/"):
            yield f"{variable} is not a file's"
    if re.search(r"//[^/ ]+:[^/ ]+@", " ".join(words)):
        yield "a password stands in a command"
    if "depends_on" in service:
        writable = [v for v in service.get("volumes", ()) if "/secrets/" in v and ":ro" not in v]
        if writable:
            yield f"it can change {writable}"


@pytest.mark.parametrize("name", FILES)
def test_a_service_can_change_nothing_but_its_volumes_and_reach_nothing_but_its_own(
    name: str,
) -> None:
    assert not list(problems(compose(name)))


def change(service: str, key: str, value: Any) -> Callable[[Any], None]:
    def apply(file: Any) -> None:
        file["services"][service][key] = value

    return apply


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (change("worker", "read_only", False), "worker: its root file system can be written"),
        (change("postgres", "cap_add", ["CHOWN"]), "postgres: it has capabilities"),
        (change("sweep", "privileged", True), "sweep: it can become more than it is"),
        (change("storage", "user", "0:0"), "storage: it may run as root"),
        (change("storage", "image", "minio/minio:latest"), "storage: its image is not pinned"),
        (change("mlflow", "ports", ["5000:5000"]), "a port is published beyond this machine"),
        (change("worker", "network_mode", "host"), "worker: it shares a network"),
        (change("worker", "networks", ["outside"]), "worker: it has a way out"),
        (change("sweep", "volumes", ["/home:/work"]), "sweep: a volume is not named"),
        (
            change("mlflow", "depends_on", {"postgres": {"condition": "service_started"}}),
            "mlflow: it waits for postgres in the wrong way",
        ),
        (change("scheduler", "volumes", []), "scheduler: /secrets/tls is not mounted"),
        (
            change("postgres", "environment", {"POSTGRES_PASSWORD": "guess"}),
            "postgres: POSTGRES_PASSWORD is not a file's",
        ),
        (
            change("sweep", "command", ["run", "--storage=postgresql://me:word@postgres/sweeps"]),
            "sweep: a password stands in a command",
        ),
        (
            change("worker", "volumes", ["tls-keys:/secrets/tls", "storage-keys:/secrets/storage"]),
            "worker: it can change ['tls-keys:/secrets/tls'",
        ),
    ],
)
def test_each_rule_sees_a_file_that_breaks_it(broken: Callable[[Any], None], said: str) -> None:
    file = copy.deepcopy(compose("compose.yaml"))
    broken(file)
    assert [problem for problem in problems(file) if said in problem]


def mistakes(dockerfile: str) -> Iterator[str]:
    """What is wrong with the image's recipe."""
    users: dict[str, str] = {}  # stage -> who runs its commands; empty: root
    stage = ""
    for line in re.sub(r"\\\n\s*", "", dockerfile).splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, stage = rest.partition(" AS ")
            if base not in users and not re.search(
                r":\d+\.\d+\.\d+-slim-\w+@sha256:[\da-f]{64}$", base
            ):
                yield f"{base} is not a pinned, slim release"
            users[stage] = users.get(base, "")
        elif instruction == "USER":
            users[stage] = rest
        elif instruction == "RUN" and users[stage]:
            yield "something is run after the user is set"
        yield from _unsafe(instruction, rest)
    yield from (f"{one} runs as root" for one in ("cpu", "cuda") if users[one] != "1000:1000")
    if stage != "cpu":
        yield "the default is not the one for the CPU"


def _unsafe(instruction: str, rest: str) -> Iterator[str]:
    if instruction == "ADD":
        yield "ADD fetches and unpacks"
    if "pip install" in rest and "--constraint constraints.txt" not in rest:
        yield "an install is not locked"
    if instruction in ("ARG", "ENV") and SECRET.search(rest):
        yield f"a secret would stay in the image: {rest}"
    if instruction == "COPY" and not rest.startswith("--from"):
        sources = rest.split()[:-1]
        yield from (f"{one} is not there" for one in sources if not (REPOSITORY / one).exists())


def test_the_image_is_pinned_and_locked_and_runs_nothing_as_root() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    assert not list(mistakes(text))
    for old, new, said in (
        ("3.11.14-slim-bookworm@", "latest@", "not a pinned, slim release"),
        ("-bookworm@sha256:65a93d69", "-bookworm@sha256:", "not a pinned, slim release"),
        ("USER 1000:1000\n", "", "cpu runs as root"),
        ("WORKDIR /work\n", "RUN true\n", "after the user is set"),
        ("--constraint constraints.txt", "", "an install is not locked"),
        ('ARG PIP_ARGS="', 'ARG INDEX_TOKEN="', "a secret would stay"),
        ("COPY sweep sweep", "COPY swoop swoop", "swoop is not there"),
        ("COPY sweep sweep", "ADD sweep sweep", "ADD fetches"),
        ("FROM base AS cuda", "FROM build AS cuda", "cuda runs as root"),
    ):
        assert old in text
        assert [one for one in mistakes(text.replace(old, new)) if said in one], said


def test_only_what_is_copied_travels_to_the_builder() -> None:
    kept = (DOCKER / "Dockerfile.dockerignore").read_text().split()
    copied = re.findall(r"^COPY ([^-].*) \S+$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert {name for group in copied for name in group.split()} == {
        name[1:] for name in kept if name.startswith("!")
    }
