"""etcd's transactions and leases by its JSON interface (the v3 gateway), with the standard library.

What a member answers is checked. An answer that does not come says nothing of what has been done: what
asks has to ask again until it knows.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyft.hosts.head.elected import Refused, Unanswered

LARGEST = 64 << 20  # of an answer
PAGE = 200  # keys of a prefix that are read at once
TOO_MANY = "too many requests"  # at this moment; a store that is full has the same status


@dataclass(frozen=True)
class Put:
    """Write a key; it vanishes with its lease, unless that is 0."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True)
class Value:
    """What a key has. `created`: the revision of the store in which the key was made."""

    key: str
    value: bytes
    created: int
    lease: int


class Store(Protocol):
    """What the ledger needs of etcd. `seconds`: for the answer; else it is Unanswered."""

    def grant(self, seconds_to_live: int, seconds: float) -> tuple[int, int]:
        """Make a lease; return its id, and how long it lives without being kept."""

    def keep(self, lease: int, seconds: float) -> int:
        """Keep a lease; return how long it lives from now on, 0 if it has ended."""

    def revoke(self, lease: int, seconds: float) -> None:
        """End a lease, and with it its keys."""

    def transact(
        self, created: dict[str, int], then: Sequence[Put], read: str, seconds: float
    ) -> tuple[bool, Value | None]:
        """If keys were created in these revisions (0: are not there), write; read a key after that."""

    def read(self, prefix: str, seconds: float) -> list[Value]:
        """Return all keys that begin so, in their order."""


class Gateway:
    """Members of one etcd, of which one that answers is asked. For one thread."""

    def __init__(
        self, members: Sequence[tuple[str, int]], tls: ssl.SSLContext | None = None
    ) -> None:
        self._members, self._tls = list(members), tls
        self._connection: http.client.HTTPConnection | None = None

    def grant(self, seconds_to_live: int, seconds: float) -> tuple[int, int]:
        """Make a lease."""
        said = self._ask("lease/grant", {"TTL": seconds_to_live}, seconds)
        return _number(said, "ID"), _number(said, "TTL")

    def keep(self, lease: int, seconds: float) -> int:
        """Keep a lease."""
        said = self._ask("lease/keepalive", {"ID": lease}, seconds)
        result = said.get("result")
        return _number(result, "TTL") if isinstance(result, dict) else 0

    def revoke(self, lease: int, seconds: float) -> None:
        """End a lease."""
        self._ask("lease/revoke", {"ID": lease}, seconds)

    def transact(
        self, created: dict[str, int], then: Sequence[Put], read: str, seconds: float
    ) -> tuple[bool, Value | None]:
        """Write if that holds, and read."""
        looked = {"request_range": {"key": _coded(read.encode())}}
        writes = [
            {
                "request_put": {
                    "key": _coded(one.key.encode()),
                    "value": _coded(one.value),
                    "lease": one.lease,
                }
            }
            for one in then
        ]
        conditions = [
            {
                "key": _coded(key.encode()),
                "target": "CREATE",
                "result": "EQUAL",
                "create_revision": revision,
            }
            for key, revision in created.items()
        ]
        body = {"compare": conditions, "success": [*writes, looked], "failure": [looked]}
        said = self._ask("kv/txn", body, seconds)
        done, answers = said.get("succeeded", False), said.get("responses")
        if done not in (True, False) or not isinstance(answers, list) or not answers:
            raise Refused("its answer to a transaction is none")
        last = answers[-1].get("response_range") if isinstance(answers[-1], dict) else None
        found = _values(last)
        return done, found[0] if found else None

    def read(self, prefix: str, seconds: float) -> list[Value]:
        """Return all keys with a prefix: the present ones, not those of a member that is behind."""
        found: list[Value] = []
        begin, end = prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
        while True:
            asked = {"key": _coded(begin.encode()), "range_end": _coded(end.encode())}
            said = self._ask("kv/range", asked | {"limit": PAGE}, seconds)
            found += (page := _values(said))
            if not said.get("more") or not page:
                return found
            begin = page[-1].key + "\0"

    def _ask(self, what: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Ask the member that has answered last; the next one is asked the next time."""
        try:
            status, data = self._post(f"/v3/{what}", json.dumps(body), seconds)
        except ssl.SSLCertVerificationError as error:
            raise Refused(
                f"etcd is not trusted, see PYFT_ETCD_CA: {error.verify_message}"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self._turn()
            raise Unanswered(f"etcd does not answer: {error or type(error).__name__}") from None
        is_late = status >= http.client.INTERNAL_SERVER_ERROR  # no leader among them, or late
        try:
            said = _parsed(data)
        except Refused as error:  # also a page of what stands before etcd, while that is away
            if not is_late:
                raise
            said = {"error": str(error)}
        if status == http.client.OK and "error" not in said:
            return said
        why = f"{said.get('error') or said.get('message') or data[:80]!r:.200}"
        if is_late or (status == http.client.TOO_MANY_REQUESTS and TOO_MANY in why):
            self._turn()
            raise Unanswered(f"etcd cannot answer: {why}")
        raise Refused(f"etcd refuses [{what}]: {why}")

    def _post(self, path: str, body: str, seconds: float) -> tuple[int, bytes]:
        if self._connection is None:
            host, port = self._members[0]
            if self._tls:
                made = http.client.HTTPSConnection(host, port, timeout=seconds, context=self._tls)
                self._connection = made
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=seconds)
        self._connection.timeout = seconds
        if self._connection.sock:
            self._connection.sock.settimeout(seconds)
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        data = answer.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise http.client.HTTPException(f"an answer of more than [{LARGEST}] bytes")
        return answer.status, data

    def _turn(self) -> None:
        """Ask another member next."""
        if self._connection:
            self._connection.close()
            self._connection = None
        self._members.append(self._members.pop(0))


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Refused(f"what answers is no etcd: [{data[:80]!r}]")
    return said


def _number(said: dict[str, Any], name: str) -> int:
    """Return a number, which the gateway writes as text, and leaves out if it is 0."""
    try:
        return int(said.get(name, 0))
    except (TypeError, ValueError):
        raise Refused(f"etcd's [{name}] is [{said.get(name)!r:.40}]") from None


def _values(said: Any) -> list[Value]:
    """Return keys and values of an answer."""
    try:
        return [
            Value(
                base64.b64decode(one["key"], validate=True).decode(),
                base64.b64decode(one.get("value", ""), validate=True),
                _number(one, "create_revision"),
                _number(one, "lease"),
            )
            for one in said.get("kvs", [])
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Refused("etcd's keys and values are none") from None
