"""Objects of Kubernetes by its REST interface, with the standard library.

An object is written only as the next version of the one that was read: another writer's comes in between
as a Conflict. What the API server answers is checked. An answer that does not come says nothing of what
has been done.
"""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pyft.hosts.head.elected import Refused, Unanswered

LARGEST = 8 << 20  # of an answer
LEASES = "apis/coordination.k8s.io/v1", "leases", "Lease"
CONFIG_MAPS = "api/v1", "configmaps", "ConfigMap"
Kind = tuple[str, str, str]  # group and version, the word in an address, and in an object
_TOKEN_BYTES = 64 << 10
# Nothing is done, and may be at the next try: a token has just been changed, roles are not read yet,
# it is asked too often, or late.
_LATER = frozenset({401, 403, 408, 429})
_DONE = frozenset({200, 201})


class Conflict(Exception):
    """The object is another version by now, is gone, or is there already: nothing was written."""


@dataclass(frozen=True)
class Found:
    """An object. `version`: changes with each write; `about`: all of its metadata."""

    version: str
    content: dict[str, Any]  # a Lease's spec, a ConfigMap's data
    about: dict[str, Any] = field(default_factory=dict)


class Store(Protocol):
    """What the ledger needs of Kubernetes. `seconds`: for the answer; else it is Unanswered."""

    def read(self, kind: Kind, name: str, seconds: float) -> Found | None:
        """Return the present object, None if there is none."""

    def create(self, kind: Kind, name: str, content: dict[str, Any], seconds: float) -> Found:
        """Make an object; raise Conflict if there is one."""

    def update(
        self, kind: Kind, name: str, before: Found, content: dict[str, Any], seconds: float
    ) -> Found:
        """Write an object in place of what was read; raise Conflict if that is not so any more."""


@dataclass(frozen=True)
class Access:
    """Where the API server is. `token`: a file, which Kubernetes changes now and then."""

    host: str
    port: int
    token: Path | None
    tls: ssl.SSLContext | None


class Api:
    """Objects of one namespace. `labels`: of those that are made. For one thread."""

    def __init__(self, access: Access, namespace: str, labels: dict[str, str]) -> None:
        self._access, self._namespace, self._labels = access, namespace, labels
        self._connection: http.client.HTTPConnection | None = None

    def read(self, kind: Kind, name: str, seconds: float) -> Found | None:
        """Return the present object: not one that the API server has kept from earlier."""
        status, said = self._ask("GET", self._path(kind, name), None, seconds)
        return None if status == http.client.NOT_FOUND else _found(kind, name, said)

    def create(self, kind: Kind, name: str, content: dict[str, Any], seconds: float) -> Found:
        """Make an object."""
        about = {"name": name, "namespace": self._namespace, "labels": self._labels}
        body = _object(kind, about, content)
        status, said = self._ask("POST", self._path(kind), body, seconds)
        if status == http.client.CONFLICT:
            raise Conflict(_why(said))
        if status == http.client.NOT_FOUND:
            raise Refused(f"the API server has no place for it: {_why(said)}")
        return _found(kind, name, said)

    def update(
        self, kind: Kind, name: str, before: Found, content: dict[str, Any], seconds: float
    ) -> Found:
        """Write an object in place of what was read."""
        body = _object(kind, before.about, content)
        status, said = self._ask("PUT", self._path(kind, name), body, seconds)
        if status in (http.client.CONFLICT, http.client.NOT_FOUND):
            raise Conflict(_why(said))
        return _found(kind, name, said)

    def _path(self, kind: Kind, name: str = "") -> str:
        where = f"/{kind[0]}/namespaces/{self._namespace}/{kind[1]}"
        return f"{where}/{name}" if name else where

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, seconds: float
    ) -> tuple[int, dict[str, Any]]:
        """Return status and answer, of those that say what has been done."""
        try:
            status, data = self._sent(method, path, body, seconds)
        except ssl.SSLCertVerificationError as error:
            self._close()
            raise Refused(f"the API server is not trusted: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            self._close()
            raise Unanswered(
                f"the API server does not answer: {error or type(error).__name__}"
            ) from None
        said = _parsed(data)
        if status in _DONE or status in (http.client.CONFLICT, http.client.NOT_FOUND):
            return status, said
        if status in _LATER or status >= http.client.INTERNAL_SERVER_ERROR:
            raise Unanswered(f"the API server cannot answer [{status}]: {_why(said)}")
        raise Refused(f"the API server refuses [{status}]: {_why(said)}")

    def _sent(
        self, method: str, path: str, body: dict[str, Any] | None, seconds: float
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        if self._access.token:
            headers["Authorization"] = f"Bearer {_token(self._access.token)}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connected(seconds)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        data = answer.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise http.client.HTTPException(f"an answer of more than [{LARGEST}] bytes")
        return answer.status, data

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        where = (self._access.host, self._access.port)
        if self._connection is None:
            self._connection = (
                http.client.HTTPSConnection(*where, timeout=seconds, context=self._access.tls)
                if self._access.tls
                else http.client.HTTPConnection(*where, timeout=seconds)
            )
        self._connection.timeout = seconds
        if self._connection.sock:
            self._connection.sock.settimeout(seconds)
        return self._connection

    def _close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None


def _object(kind: Kind, about: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    version = kind[0].partition("/")[2]
    part = "spec" if kind is LEASES else "data"
    return {"apiVersion": version, "kind": kind[2], "metadata": about, part: content}


def _token(path: Path) -> str:
    """Return the token as it is now; raise OSError."""
    with path.open("rb") as file:
        text = file.read(_TOKEN_BYTES).strip().decode("ascii", "replace")
    if not text.isprintable():
        raise OSError(f"[{path}] is no token")
    return text


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unanswered(f"what answers is no API server: [{data[:80]!r}]")
    return said


def _why(said: dict[str, Any]) -> str:
    return f"{said.get('message', said.get('reason', 'it does not say why'))!s:.300}"


def _found(kind: Kind, name: str, said: dict[str, Any]) -> Found:
    """Return the object of an answer; raise Refused if it is none."""
    about, content = said.get("metadata"), said.get("spec" if kind is LEASES else "data") or {}
    if said.get("kind") != kind[2] or not isinstance(about, dict) or about.get("name") != name:
        raise Refused(f"the API server's answer is no {kind[2]} [{name}]")
    version = about.get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise Refused(f"the {kind[2]} [{name}] has no version")
    if not isinstance(content, dict):
        raise Refused(f"the {kind[2]} [{name}] has no contents")
    about.pop("managedFields", None)  # the API server's own, and long
    return Found(version, content, about)
