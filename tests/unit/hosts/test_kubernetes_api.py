"""What an API server answers is checked; an answer that does not come says nothing."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import ApiServer, account

from pyft.errors import UsageError
from pyft.hosts.head.elected import Refused, Unanswered
from pyft.hosts.kubernetes import api as module
from pyft.hosts.kubernetes import opening
from pyft.hosts.kubernetes.api import CONFIG_MAPS, LEASES, Api, Conflict

SECONDS = 20.0
TOKEN = "a-token-of-a-pod"
CERTIFICATES = Path(__file__).with_name("certificates")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A stand-in of the API server."""
    made = ApiServer(TOKEN)
    yield made
    made.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a pod has of its account."""
    return account(tmp_path / "account", TOKEN)


@pytest.fixture
def api(server: ApiServer, folder: Path) -> Api:
    """One head's way to it."""
    access = module.Access("127.0.0.1", server.port, folder / "token", None)
    return Api(access, "training", {"pyft-ledger": "run7"})


def test_what_is_asked_is_what_kubernetes_takes(server: ApiServer, api: Api) -> None:
    assert api.read(LEASES, "run7", SECONDS) is None
    made = api.create(LEASES, "run7", {"holderIdentity": "h"}, SECONDS)
    written = api.update(LEASES, "run7", made, {"holderIdentity": "g"}, SECONDS)
    assert written.version != made.version
    assert api.read(LEASES, "run7", SECONDS) == written
    api.create(CONFIG_MAPS, "run7-000000", {"by": "1"}, SECONDS)
    leases = "/apis/coordination.k8s.io/v1/namespaces/training/leases"
    maps = "/api/v1/namespaces/training/configmaps"
    assert [asked[:2] for asked in server.asked] == [
        ("GET", f"{leases}/run7"),
        ("POST", leases),
        ("PUT", f"{leases}/run7"),
        ("GET", f"{leases}/run7"),
        ("POST", maps),
    ]
    lease = server.cluster.objects["leases", "run7"]
    assert (lease["apiVersion"], lease["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert lease["metadata"]["labels"] == {"pyft-ledger": "run7"}
    assert server.cluster.objects["configmaps", "run7-000000"]["apiVersion"] == "v1"


def test_a_version_that_is_not_the_present_one_is_a_conflict(api: Api) -> None:
    made = api.create(LEASES, "run7", {}, SECONDS)
    with pytest.raises(Conflict):
        api.create(LEASES, "run7", {}, SECONDS)
    api.update(LEASES, "run7", made, {"holderIdentity": "g"}, SECONDS)
    with pytest.raises(Conflict):
        api.update(LEASES, "run7", made, {"holderIdentity": "h"}, SECONDS)
    with pytest.raises(Conflict):
        api.update(LEASES, "gone", made, {}, SECONDS)


def test_a_token_is_read_anew(server: ApiServer, api: Api, folder: Path) -> None:
    """Kubernetes changes it each hour; one that is too old is refused until the file has the next."""
    api.create(LEASES, "run7", {}, SECONDS)
    server.token = "the-next-token"
    with pytest.raises(Unanswered, match=r"\[401\]"):
        api.read(LEASES, "run7", SECONDS)
    account(folder, "the-next-token")
    assert api.read(LEASES, "run7", SECONDS)
    (folder / "token").write_bytes(b"a\nb")
    with pytest.raises(Unanswered, match="is no token"):
        api.read(LEASES, "run7", SECONDS)


def test_no_answer_says_nothing(server: ApiServer, api: Api) -> None:
    server.lose = lambda method: method == "POST"
    with pytest.raises(Unanswered):
        api.create(LEASES, "run7", {}, SECONDS)
    assert api.read(LEASES, "run7", SECONDS)  # it was made
    server.stop()
    with pytest.raises(Unanswered):
        api.read(LEASES, "run7", SECONDS)
    server.start()
    assert api.read(LEASES, "run7", SECONDS)
    server.latency_s = 1.0
    with pytest.raises(Unanswered):
        api.read(LEASES, "run7", 0.1)


def test_a_namespace_that_is_not_there_is_said(server: ApiServer, api: Api) -> None:
    elsewhere = Api(api._access, "other", {})
    with pytest.raises(Refused, match="has no place for it"):
        elsewhere.create(LEASES, "run7", {}, SECONDS)


def test_what_is_too_long_is_refused(api: Api) -> None:
    with pytest.raises(Refused, match=r"\[422\]: Too long"):
        api.create(CONFIG_MAPS, "run7-000000", {"x": "y" * (1 << 20)}, SECONDS)


LEASE: dict[str, Any] = {"kind": "Lease", "metadata": {"name": "run7", "resourceVersion": "1"}}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "no Lease"),
        ({"kind": "Pod"}, "no Lease"),
        (LEASE | {"metadata": 5}, "no Lease"),
        (LEASE | {"metadata": {"name": "x", "resourceVersion": "1"}}, "no Lease"),
        (LEASE | {"metadata": {"name": "run7", "resourceVersion": 1}}, "no version"),
        (LEASE | {"spec": [1]}, "no contents"),
    ],
)
def test_an_answer_that_is_none_is_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(api, "_ask", lambda *_: (200, said))
    with pytest.raises(Refused, match=why):
        api.read(LEASES, "run7", SECONDS)


@pytest.mark.parametrize("data", [b"", b"<html>", b"[1]", b"[" * 100_000])
def test_what_is_no_api_server_is_no_answer(
    api: Api, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """A proxy in front of it may be all that there is for a while."""
    monkeypatch.setattr(api, "_sent", lambda *_: (502, data))
    with pytest.raises(Unanswered, match="no API server"):
        api.read(LEASES, "run7", SECONDS)


def test_an_answer_without_end_is_given_up(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 10)
    with pytest.raises(Unanswered, match="more than"):
        api.read(LEASES, "run7", SECONDS)


def test_by_tls_only_who_the_account_trusts(folder: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "api-server.pem")
    server = ApiServer(TOKEN, context)
    environment = {"PYFT_KUBERNETES_API": server.url, "PYFT_KUBERNETES_ACCOUNT": str(folder)}
    try:
        authority = folder / "ca.crt"
        authority.write_bytes((CERTIFICATES / "api-server-ca.crt").read_bytes())
        ledger = opening.opened("kubernetes://training/run7", b"s" * 16, "h", environment)
        ledger.stand(2, print)
        ledger.write({"kind": "term", "term": 1})
        ledger.close()
        assert {asked[2] for asked in server.asked} == {f"Bearer {TOKEN}"}
        count = len(server.asked)
        access = replace(ledger._store._access, tls=ssl.create_default_context())  # type: ignore
        other = Api(access, "training", {})
        with pytest.raises(Refused, match="the API server is not trusted"):
            other.read(LEASES, "run7", SECONDS)
        assert len(server.asked) == count  # nor told the token
        authority.write_text("none")
        with pytest.raises(UsageError, match="cannot be used"):
            opening.opened("kubernetes://training", b"s" * 16, "h", environment)
    finally:
        server.stop()
