"""The manifests: the compose file's commands and variables, as locked, and nothing dangling."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.docker.test_files import DOCKER, RELEASE, compose

FOLDER = DOCKER / "kubernetes"
SERVICES = compose("compose.yaml")["services"]
#: What each kind is written for.
VERSIONS = {
    "Namespace": "v1",
    "Service": "v1",
    "PersistentVolumeClaim": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}
POD = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "fsGroupChangePolicy": "OnRootMismatch",  # PostgreSQL refuses a folder whose rights it changes
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def manifests() -> list[Any]:
    files = [*sorted(FOLDER.glob("*.yaml")), *FOLDER.glob("example/*.yaml")]
    return [one for file in files for one in YAML(typ="safe").load_all(file) if one]


def pods(documents: Sequence[Any]) -> dict[str, Any]:
    """Name → what runs."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in documents
        if one["kind"] in ("Deployment", "StatefulSet", "Job")
    }


def names(documents: Sequence[Any], kind: str) -> set[str]:
    return {one["metadata"]["name"] for one in documents if one["kind"] == kind}


def problems(documents: Sequence[Any]) -> Iterator[str]:
    """What is wrong with the manifests."""
    yield from _misplaced(documents)
    running = pods(documents)
    if set(running) != set(SERVICES) - {"keys"}:  # whose part is a person's here
        yield "services are missing"
    for name, template in running.items():
        pod, (container,) = template["spec"], template["spec"]["containers"]
        for problem in (
            *_unlocked(pod, container),
            *_dangling(documents, pod, container),
            *_differs(name, container),
        ):
            yield f"{name}: {problem}"
        if template["metadata"]["labels"] != {"app": name}:
            yield f"{name}: nobody finds it"
    yield from _unreachable(documents)


def _misplaced(documents: Sequence[Any]) -> Iterator[str]:
    for one in documents:
        where = f"{one['kind']} {one['metadata']['name']}"
        if one["apiVersion"] != VERSIONS[one["kind"]]:
            yield f"{where}: {one['apiVersion']} has no such kind"
        if one["kind"] != "Namespace" and one["metadata"].get("namespace") != "sweep":
            yield f"{where}: it is outside the namespace"
        if one["kind"] == "Service" and one["spec"].get("type", "ClusterIP") != "ClusterIP":
            yield f"{where}: it is published"
        if one["kind"] == "Namespace" and "restricted" not in one["metadata"]["labels"].values():
            yield f"{where}: pods may be more than the restricted standard allows"


def _unlocked(pod: Any, container: Any) -> Iterator[str]:
    if pod.get("securityContext") != POD or container.get("securityContext") != CONTAINER:
        yield "it is not locked"
    if {"hostNetwork", "hostPID", "hostIPC"} & set(pod):
        yield "it shares what is the machine's"
    if pod["automountServiceAccountToken"] is not False:
        yield "it is given a token of the cluster"
    if pod["enableServiceLinks"] is not False:  # MLFLOW_PORT=tcp://… stops MLflow
        yield "the names of services become variables"
    if not RELEASE.search(container["image"]) and not container["image"].endswith("/sweep-rl:1"):
        yield "its image is not pinned"
    if "memory" not in container["resources"]["limits"]:
        yield "it may take all memory"


def _dangling(documents: Sequence[Any], pod: Any, container: Any) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    if {mount["name"] for mount in mounts.values()} != set(volumes):
        yield "volumes and mounts differ"
    for volume in volumes.values():
        claimed = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claimed and claimed not in names(documents, "PersistentVolumeClaim"):
            yield f"nobody claims {claimed}"
        if not {"persistentVolumeClaim", "emptyDir", "secret"} & set(volume):
            yield f"{volume['name']} is none of ours"
    for path, mount in mounts.items():
        secret = volumes.get(mount["name"], {}).get("secret")
        if path.startswith("/secrets/") and (
            secret != {"secretName": path.removeprefix("/secrets/"), "defaultMode": 0o440}
        ):
            yield f"{path} is not the secret of that name"


def _differs(name: str, container: Any) -> Iterator[str]:
    """From the compose file, whose commands are run by a test."""
    service = SERVICES[name]
    if (container.get("command"), container["args"]) != (
        service.get("entrypoint"),
        service["command"],
    ):
        yield "its command is not the compose file's"
    variables = {one["name"]: one.get("value") for one in container.get("env", ())}
    if variables != service.get("environment", {}):
        yield "its variables are not the compose file's"
    here = {mount["mountPath"] for mount in container["volumeMounts"]}
    there = {volume.split(":")[1] for volume in service["volumes"]}
    if not there <= here or {one for one in here - there if one.startswith("/secrets")}:
        yield "its volumes are not the compose file's"


def _unreachable(documents: Sequence[Any]) -> Iterator[str]:
    """Services that nobody may ask, or everybody."""
    policies = {
        one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "NetworkPolicy"
    }
    if policies.get("nothing") != {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}:
        yield "what is not allowed is not forbidden"
    services = {one["metadata"]["name"]: one for one in documents if one["kind"] == "Service"}
    for name, service in services.items():
        (port,) = service["spec"]["ports"]
        (rule,) = policies[name]["ingress"]
        if service["spec"]["selector"] != {"app": name} or name not in SERVICES:
            yield f"{name}: the service has no pods"
        if rule.get("ports") != [port]:
            yield f"{name}: another port is open"
        ((allowed,),) = [one["podSelector"]["matchExpressions"] for one in rule["from"]]
        asking = {
            other
            for other, one in SERVICES.items()
            if other != name and f"{name}:{port['port']}" in _words(one)
        }
        if set(allowed["values"]) != asking:
            yield f"{name}: {sorted(asking)} ask it"


def _words(service: Any) -> str:
    variables = dict(service.get("environment", {}))
    server = f" {variables.get('PGHOST')}:{variables.get('PGPORT')}"
    return " ".join([*service["command"], *variables.values()]) + server


def test_the_manifests_are_the_compose_file_for_a_cluster_and_as_locked() -> None:
    assert not list(problems(manifests()))


def change(pod: str, *path: Any, to: Any) -> Callable[[Any], None]:
    def apply(documents: Any) -> None:
        found = pods(documents)[pod]["spec"]
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = to

    return apply


def edit(kind: str, name: str, key: str, to: Any) -> Callable[[Any], None]:
    def apply(documents: Any) -> None:
        for one in documents:
            if (one["kind"], one["metadata"]["name"]) == (kind, name):
                one["spec"][key] = to

    return apply


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (change("worker", "securityContext", "runAsUser", to=0), "worker: it is not locked"),
        (change("mlflow", "hostNetwork", to=True), "mlflow: it shares what is the machine's"),
        (change("mlflow", "enableServiceLinks", to=True), "mlflow: the names of services"),
        (change("sweep", "automountServiceAccountToken", to=True), "sweep: it is given a token"),
        (
            change("storage", "containers", 0, "image", to="minio/minio:latest"),
            "storage: its image is not pinned",
        ),
        (
            change("postgres", "volumes", 0, "secret", "secretName", to="sweep"),
            "postgres: /secrets/postgres is not the secret of that name",
        ),
        (
            change("postgres", "volumes", 1, to={"name": "database", "hostPath": {"path": "/"}}),
            "postgres: database is none of ours",
        ),
        (
            change("postgres", "containers", 0, "env", to=[]),
            "postgres: its variables are not the compose file's",
        ),
        (
            change("sweep", "containers", 0, "args", to=["run", "quickstart"]),
            "sweep: its command is not the compose file's",
        ),
        (edit("Service", "mlflow", "type", "LoadBalancer"), "Service mlflow: it is published"),
        (edit("NetworkPolicy", "nothing", "policyTypes", ["Ingress"]), "is not forbidden"),
        (
            edit("Service", "postgres", "ports", [{"port": 5433}]),
            "postgres: another port is open",
        ),
    ],
)
def test_each_rule_sees_manifests_that_break_it(broken: Callable[[Any], None], said: str) -> None:
    documents = copy.deepcopy(manifests())
    assert not [problem for problem in problems(documents) if said in problem]
    broken(documents)
    assert [problem for problem in problems(documents) if said in problem]
