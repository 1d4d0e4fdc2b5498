"""Objects of Kubernetes in memory, as its API server keeps them, and two ways to them.

FakeStore: a network that loses and delays what is asked, with a clock of its own. ApiServer: the real
protocol, with latency, answers that are lost, refused tokens, and restarts.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyft.hosts.head.elected import Refused, Unanswered
from pyft.hosts.kubernetes.api import Conflict, Found, Kind

MOST_BYTES = 1 << 20  # of a ConfigMap's data


@dataclass
class Cluster:
    """All objects. `time` is that of all heads, and `late` what is done in the future."""

    time: float = 1000.0
    version: int = 100
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # word and name
    late: list[tuple[float, Callable[[], Any]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def pass_time(self, seconds: float) -> None:
        """Go on: what is late is done in its time."""
        until = self.time + seconds
        for when, do in sorted(self.late, key=lambda one: one[0]):
            if when <= until:
                self.time = max(self.time, when)
                with contextlib.suppress(Conflict, Refused):
                    do()
        self.late = [one for one in self.late if one[0] > until]
        self.time = until

    def read(self, word: str, name: str) -> dict[str, Any] | None:
        """Return an object."""
        with self.lock:
            return self.objects.get((word, name))

    def create(self, word: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make an object."""
        with self.lock:
            if (word, name) in self.objects:
                raise Conflict("AlreadyExists")
            return self._put(word, name, body, f"uid-{self.version}")

    def update(self, word: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Write the next version of an object; Kubernetes takes any if none is said, and pyft says one."""
        with self.lock:
            before = self.objects.get((word, name))
            if before is None:
                raise Conflict("NotFound")
            about, wanted = before["metadata"], body["metadata"]
            if wanted["resourceVersion"] != about["resourceVersion"]:
                raise Conflict("the object has been modified")
            if wanted.get("uid", about["uid"]) != about["uid"]:
                raise Conflict("the UID in the precondition does not match")
            return self._put(word, name, body, about["uid"])

    def _put(self, word: str, name: str, body: dict[str, Any], uid: str) -> dict[str, Any]:
        if len(json.dumps(body.get("data", {}))) > MOST_BYTES:
            raise Refused("Too long: may not be more than 1048576 bytes")
        self.version += 1
        about = {**body["metadata"], "name": name, "uid": uid}
        about["resourceVersion"] = str(self.version)
        made = json.loads(json.dumps(body | {"metadata": about}))
        self.objects[word, name] = made
        return made

    def decisions(self, name: str) -> list[str]:
        """Return the decisions of a job."""
        pages = sorted(key for key in self.objects if key[0] == "configmaps")
        found = [self.objects[key]["data"] for key in pages if key[1].startswith(f"{name}-")]
        return [v for data in found for k, v in sorted(data.items()) if k.isdecimal()]


class FakeStore:
    """One head's way to it. `trouble`: which share of what is asked is lost, or late."""

    def __init__(self, cluster: Cluster, dice: random.Random, trouble: float = 0.0) -> None:
        self.cluster, self.dice, self.trouble = cluster, dice, trouble

    def _ask(self, do: Callable[[], Any], seconds: float) -> Any:
        """Do it, or not, or later; and lose the answer or not."""
        if self.dice.random() >= self.trouble:
            done = do()
            if self.dice.random() < self.trouble:  # a slow answer
                self.cluster.pass_time(self.dice.uniform(0, seconds))
            return done
        how = self.dice.choice(("asked in vain", "done unheard", "done late"))
        if how == "done late":
            self.cluster.late.append((self.cluster.time + self.dice.uniform(0, 9), do))
        elif how == "done unheard":
            with contextlib.suppress(Conflict):
                do()
        self.cluster.pass_time(seconds)
        raise Unanswered(how)

    def read(self, kind: Kind, name: str, seconds: float) -> Found | None:
        """Return an object."""

        def do() -> Found | None:
            made = self.cluster.read(kind[1], name)
            return _found(kind, made) if made else None

        return self._ask(do, seconds)

    def create(self, kind: Kind, name: str, content: dict[str, Any], seconds: float) -> Found:
        """Make an object."""
        body = {"metadata": {"name": name}, _part(kind): dict(content)}
        return self._ask(lambda: _found(kind, self.cluster.create(kind[1], name, body)), seconds)

    def update(
        self, kind: Kind, name: str, before: Found, content: dict[str, Any], seconds: float
    ) -> Found:
        """Write an object."""
        body = {"metadata": dict(before.about), _part(kind): dict(content)}
        return self._ask(lambda: _found(kind, self.cluster.update(kind[1], name, body)), seconds)


def _part(kind: Kind) -> str:
    return "spec" if kind[1] == "leases" else "data"


def _found(kind: Kind, made: dict[str, Any]) -> Found:
    about = made["metadata"]
    return Found(about["resourceVersion"], dict(made[_part(kind)]), dict(about))


class ApiServer:
    """A stand-in of the API server, at one port also after a restart."""

    def __init__(self, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        """`token`: who has it is answered, if there is one."""
        self.cluster, self.token, self._tls = Cluster(), token, tls
        self.latency_s = 0.0
        self.asked: list[tuple[str, str, str]] = []  # method, path, token
        self.lose = lambda _: False  # whether the answer to a method is lost
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        """Return its address."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Answer."""
        self._server = _Server(("127.0.0.1", self.port), self, self._tls)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        """Be away: all connections end, and all objects stay."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.cut_off()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, where: tuple[str, int], api: ApiServer, tls: ssl.SSLContext | None) -> None:
        super().__init__(where, _Connection)
        self.api = api
        self._open: list[socket.socket] = []
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection."""
        made, peer = super().get_request()
        self._open.append(made)
        return made, peer

    def cut_off(self) -> None:
        """End all connections."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """Say nothing of connections that end."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        api = self.server.api
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bearer = self.headers.get("Authorization", "")
        api.asked.append((self.command, self.path, bearer))
        time.sleep(api.latency_s)
        if api.token and bearer != f"Bearer {api.token}":
            return self._answer(401, _status("Unauthorized"))
        status, said = self._done(api.cluster, json.loads(body) if body else None)
        if api.lose(self.command):
            self.close_connection = True
            return None
        return self._answer(status, said)

    do_GET = do_POST = do_PUT = _serve

    def _done(self, cluster: Cluster, body: Any) -> tuple[int, dict[str, Any]]:
        group, _, rest = self.path.strip("/").partition("/namespaces/")
        namespace, word, *names = rest.split("/")
        kinds = {"leases": "Lease", "configmaps": "ConfigMap"}
        groups = {"leases": "apis/coordination.k8s.io/v1", "configmaps": "api/v1"}
        if namespace != "training" or groups.get(word) != group:
            return 404, _status("the server could not find the requested resource")
        try:
            if self.command == "GET":
                made = cluster.read(word, names[0])
                return (200, made) if made else (404, _status("not found"))
            if body["kind"] != kinds[word] or body["apiVersion"] != group.partition("/")[2]:
                return 400, _status("the object is of another kind")
            if self.command == "POST":
                return 201, cluster.create(word, body["metadata"]["name"], body)
            return 200, cluster.update(word, names[0], body)
        except Conflict as error:
            return (404 if str(error) == "NotFound" else 409), _status(str(error))
        except Refused as error:
            return 422, _status(str(error))

    def _answer(self, status: int, said: dict[str, Any]) -> None:
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _status(message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}


def account(folder: Path, token: str) -> Path:
    """Write what a pod finds of its account; return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(f"{token}\n")
    return folder
