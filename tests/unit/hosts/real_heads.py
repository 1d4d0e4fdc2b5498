"""Real heads of one job, in processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from job import wait_for
from stand_in_hosts import Job

SECRET = "0123456789abcdef"
LEASE = 3.0


class Heads:
    """So many heads of one job."""

    def __init__(
        self, folder: Path, ledger: str, count: int = 2, places: int = 2, **environment: str
    ) -> None:
        self.folder, self._ledger = folder, ledger
        self.addresses = [f"127.0.0.1:{_free_port()}" for _ in range(count)]
        self.processes: list[subprocess.Popen[bytes]] = []
        for number, address in enumerate(self.addresses):
            arguments = ["head", "--places", str(places)]
            arguments += ["--listen", address, "--ledger", ledger]
            arguments += ["--lease", f"{LEASE:g}", "--image-every", "0.2"]
            with open(folder / f"head-{number}", "ab") as out:
                made = subprocess.Popen(
                    [sys.executable, "-m", "pyft", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=folder,
                    env=os.environ | {"PYFT_TOKEN": SECRET} | environment,
                )
            self.processes.append(made)
            if not number:
                wait_for(lambda: "waits at" in self.said(0), 20, self.everything)

    @property
    def all(self) -> str:
        """Return their addresses, as hosts are told them."""
        return ",".join(self.addresses)

    def said(self, number: int) -> str:
        """Return what one of them has said."""
        return (self.folder / f"head-{number}").read_text()

    def everything(self) -> str:
        """Return what all have said."""
        return "\n".join(f"--- head {n}\n{self.said(n)}" for n in range(len(self.processes)))

    def wait_for(self, number: int, text: str, seconds: float = 20) -> None:
        """Wait until one of them has said something."""
        wait_for(lambda: text in self.said(number), seconds, self.everything)

    def end(self) -> None:
        """End all of them."""
        for one in self.processes:
            one.kill()
            one.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def ends_well(job: Job, heads: Heads, of: list[int]) -> None:
    """End the job: its heads say so."""
    for one in job.living():
        one.done()
    for number in of:
        assert heads.processes[number].wait(60) == 0, heads.everything()
    job.check_owners()
