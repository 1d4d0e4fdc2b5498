"""The manifests in examples/kubernetes: Kubernetes takes them, they agree, and pyft knows the options."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from pyft.cli.main import app
from pyft.hosts.kubernetes import opening

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hosts"))
from fake_kubernetes import ApiServer  # noqa: E402

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "kubernetes"
VERSIONS = ("1.29", "1.33", "1.37")
PARTS = ("head", "places", "spare")
Object = dict[str, Any]


@pytest.fixture(autouse=True)
def _package(need: Any) -> None:
    has = find_spec("kubernetes_validate") is not None
    need("kubernetes", has, "the package [kubernetes-validate] is missing")


@cache
def objects(part: str) -> tuple[Object, ...]:
    """Return what a manifest has."""
    import yaml

    return tuple(yaml.safe_load_all((FOLDER / f"{part}.yaml").read_text()))


def workload(part: str) -> Object:
    """Return what makes the pods of a manifest."""
    (found,) = [one for one in objects(part) if one["kind"] != "Service"]
    return found


def pod(part: str) -> Object:
    """Return how its pods are."""
    return workload(part)["spec"]["template"]


def container(part: str) -> Object:
    """Return their only container."""
    (found,) = pod(part)["spec"]["containers"]
    return found


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_them(part: str, version: str) -> None:
    import kubernetes_validate

    for one in objects(part):
        kubernetes_validate.validate(one, version, strict=True)
    damaged = objects(part)[-1] | {"spec": {"replicas": "two"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(damaged, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_rights_of_the_heads(version: str) -> None:
    import kubernetes_validate

    for one in objects("ledger"):
        kubernetes_validate.validate(one, version, strict=True)
    damaged = objects("ledger")[1] | {"rules": "all"}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(damaged, version, strict=True)


def test_heads_may_do_what_their_ledger_asks_for_and_nothing_else() -> None:
    """A job's whole life, with two heads, at a stand-in of the API server."""
    account, role, binding = objects("ledger")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", account["metadata"]["name"])
    assert pod("head")["spec"]["serviceAccountName"] == subject["name"]
    server = ApiServer()
    try:
        for _ in range(2):
            url = dict(options("head"))["--ledger"].replace("$(NAMESPACE)", "training")
            where = {"PYFT_KUBERNETES_API": server.url}
            ledger = opening.opened(url, b"s" * 16, "h", where)
            ledger.stand(2, print)
            ledger.write({"kind": "term"})
            ledger.write({"kind": "line"})
            ledger.close()
    finally:
        server.stop()
    verbs = {"GET": "get", "POST": "create", "PUT": "update"}
    asked = set()
    for method, path, _ in server.asked:
        group, _, rest = path.strip("/").partition("/namespaces/")
        name = group.removeprefix("api").removeprefix("s/").rpartition("/")[0]
        asked.add((name, rest.split("/")[1], verbs[method]))
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert asked == allowed


def test_services_select_their_pods() -> None:
    for part in PARTS:
        labels = pod(part)["metadata"]["labels"]
        selector = workload(part)["spec"].get("selector", {}).get("matchLabels", labels)
        assert selector.items() <= labels.items()
        for one in objects(part):
            if one["kind"] == "Service":
                assert one["spec"]["selector"] == labels
                assert one["spec"]["clusterIP"] == "None"


def test_all_are_told_the_same_heads() -> None:
    head = workload("head")
    name, service = head["metadata"]["name"], head["spec"]["serviceName"]
    wanted = [f"{name}-{n}.{service}:29471" for n in range(head["spec"]["replicas"])]
    for part in ("places", "spare"):
        (said,) = {value for option, value in options(part) if option == "--head"}
        assert said.split(",") == wanted


def test_the_number_of_places_is_the_same_everywhere() -> None:
    job = workload("places")["spec"]
    (places,) = [int(value) for option, value in options("head") if option == "--places"]
    nnodes = [int(value) for option, value in options("places") if option == "--nnodes"]
    assert [places] == nnodes
    assert places == job["completions"] == job["parallelism"] == job["maxFailedIndexes"]
    assert job["completionMode"] == "Indexed"


def test_a_lost_pod_ends_nothing_and_is_not_made_again() -> None:
    assert workload("places")["spec"]["backoffLimitPerIndex"] == 0
    assert pod("places")["spec"]["restartPolicy"] == "Never"


def test_the_level_of_privilege() -> None:
    """Images of processes need root and a privileged pod; heads need nothing."""
    for part in ("places", "spare"):
        assert container(part)["securityContext"] == {"privileged": True, "runAsUser": 0}
    head = container("head")["securityContext"]
    assert not head.get("privileged")
    assert head["capabilities"] == {"drop": ["ALL"]}


def test_a_place_can_go_to_a_spare_host() -> None:
    """It has the same image, GPUs and files."""
    for key in ("image", "resources", "volumeMounts", "envFrom"):
        assert container("places")[key] == container("spare")[key]
    assert pod("places")["spec"]["volumes"] == pod("spare")["spec"]["volumes"]


def test_one_pod_on_a_node() -> None:
    for part in PARTS:
        rules = pod(part)["spec"]["affinity"]["podAntiAffinity"]
        (rule,) = rules["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        assert (
            rule["labelSelector"]["matchLabels"].items() <= pod(part)["metadata"]["labels"].items()
        )


@pytest.mark.parametrize(
    ("part", "command"), [("head", "head"), ("places", "run"), ("spare", "host")]
)
def test_pyft_knows_the_options(part: str, command: str) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {name for one in commands[command].params for name in one.opts}
    words = [option for option, _ in options(part)]
    ours = words[: words.index("--nnodes")] if "--nnodes" in words else words
    assert ours
    assert set(ours) <= known


def test_the_shell_of_a_place_can_be_read() -> None:
    (script,) = container("places")["args"]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def options(part: str) -> Iterator[tuple[str, str]]:
    """Return options and values of a container's command."""
    args = container(part)["args"]
    words = shlex.split(args[0], comments=True) if len(args) == 1 else args
    if "exec" in words:
        words = words[words.index("exec") :]
    found = []
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--") and word != "--":
            name, is_one, value = word.partition("=")
            found.append((name, value if is_one else after))
    return iter(found)
