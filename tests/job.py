"""Start `pyft run` in a test, find its processes, and see what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYFT = os.environ.get("PYFT_TEST_COMMAND", str(Path(sys.executable).with_name("pyft")))
TRAIN = str(ROOT / "examples" / "train_gpt.py")
_MARK = "PYFT_TEST_MARK"
# The seconds that tests name are generous on a quiet machine. A busy one gets more: these bounds
# keep a test from standing still, they are no bars. An emulated machine gets more still.
_BUSY = 4 * int(os.environ.get("TESTS_SLOWER", "1"))


def wait_for(
    condition: Callable[[], object], seconds: float, what: str | Callable[[], str]
) -> None:
    """Poll until the condition holds; fail with `what` when it does not in time."""
    deadline = time.monotonic() + seconds * _BUSY
    while not condition():
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds * _BUSY} s: {text}")
        time.sleep(0.02)


# What `pyft.run` and `pyft host` have while they run. Other tests run beside this one: those of
# these two look after their own folders.
_OF_OTHERS = ("pyft-run-", "pyft-host-")


def leftovers() -> set[str]:
    """Return files and folders of pyft in shared places that a job of `pyft run` may not leave."""
    found = set()
    for folder in ("/dev/shm", "/tmp"):
        names = (name for name in os.listdir(folder) if not name.startswith(_OF_OTHERS))
        found |= {f"{folder}/{name}" for name in names if name.startswith("pyft")}
    return found


def having(word: str) -> list[int]:
    """Return every living process that has this `NAME=value` in its environment."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            data = Path(f"/proc/{entry}/environ").read_bytes()
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
            if word.encode() in data.split(b"\0") and state != "Z":
                found.append(int(entry))
    return found


class Job:
    """One `pyft run`, with output to files in `folder`."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        *,
        options: Sequence[str] = ("--gpus", "soft:1"),
        environment: dict[str, str] | None = None,
        wrapper: Sequence[str] = (),
        may_miss: bool = False,
    ) -> None:
        """No command: one that is resumed has its own. `wrapper`: a command that starts `pyft`.

        A fault that a variable of `environment` asks for has to happen, unless it `may_miss`.
        """
        folder.mkdir(exist_ok=True)
        self.log_dir = folder / "log"
        self.stdout = folder / "stdout.txt"
        self.stderr = folder / "stderr.txt"
        self._may_miss = may_miss
        self._mark = uuid.uuid4().hex
        self._before = leftovers()
        env = os.environ | (environment or {}) | {_MARK: self._mark}
        arguments = [*wrapper, PYFT, "run", "--log-dir", str(self.log_dir), *options]
        if command:
            arguments += ["--", *command]
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self._process = subprocess.Popen(
                arguments, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        self.launcher = self._process.pid

    def output(self) -> str:
        """Return what the command has printed so far."""
        return self.stdout.read_text()

    def errors(self) -> str:
        """Return what was said on stderr so far."""
        return self.stderr.read_text()

    def meta(self) -> dict:
        """Return meta.json as it is now."""
        return json.loads((self.log_dir / "meta.json").read_text())

    def wait(self, seconds: float = 60) -> int:
        """Return the exit code of `pyft run` (negative: killed by that signal)."""
        code = self._process.wait(seconds * _BUSY)
        if not self._may_miss:
            assert self.not_happened() == [], f"exit code [{code}]: {self.errors()}"
        return code

    def not_happened(self) -> list[str]:
        """Return which faults that variables have asked for have not happened."""
        texts = [path.read_text() for path in self.log_dir.glob("faults-*")]
        lines = "".join(texts).splitlines()
        asked = [line.removeprefix("asked ") for line in lines if line.startswith("asked ")]
        return [one for one in asked if f"happened {one}" not in lines]

    def over(self) -> bool:
        """Say whether the launcher has ended."""
        return self._process.poll() is not None

    def send(self, signal_number: int) -> None:
        """Signal the launcher."""
        self._process.send_signal(signal_number)

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Return what became of a command of `pyft` for this job."""
        flag = () if words[0] == "status" else ("--job",)
        line = [PYFT, *words, *flag, str(self.log_dir)]
        return subprocess.run(line, capture_output=True, text=True, timeout=60 * _BUSY)

    def order(self, *words: str) -> str:
        """Return what a command of `pyft` for this job says, which must do it."""
        done = self.ask(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def processes(self) -> list[int]:
        """Return every living process that carries this job's mark in its environment."""
        return having(f"{_MARK}={self._mark}")

    def victim(self, role: str) -> int:
        """Return the process id of launcher, supervisor, agent, or the first client or server."""
        if role == "launcher":
            return self.launcher
        if role in ("supervisor", "agent"):
            return self.meta()[f"{role}_pid"]
        live = self.meta()["live"][0]
        return live["pid"] if role == "client" else live["server_pid"]

    @contextlib.contextmanager
    def without_agent(self) -> Iterator[None]:
        """Kill the agent, and let the next one begin only afterwards."""
        supervisor, agent = self.victim("supervisor"), self.victim("agent")
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(agent, signal.SIGKILL)
        yield
        os.kill(supervisor, signal.SIGCONT)

    def kill_agent(self, seconds: float = 20) -> None:
        """Kill the agent and wait until the next one has taken over."""
        old = self.victim("agent")
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: self.victim("agent") != old, seconds, f"a new agent: {self.errors()}")

    def wait_attached(self, seconds: float = 60) -> None:
        """Wait until a client has a channel."""

        def attached() -> bool:
            assert self._process.poll() is None, self.errors()
            return (self.log_dir / "meta.json").exists() and bool(self.meta().get("live"))

        wait_for(attached, seconds, "a client attaches")

    def assert_nothing_left(self, seconds: float = 5) -> None:
        """Fail if a process, an abstract socket or a file of the job survives."""
        name = f"@pyft-{self.meta()['job']}"
        wait_for(lambda: not self.processes(), seconds, f"processes end {self.processes()}")
        # Names of abstract sockets are any bytes; the kernel forgets them a moment after the process.
        sockets = Path("/proc/net/unix")
        wait_for(lambda: name.encode() not in sockets.read_bytes(), seconds, f"[{name}] ends")
        more = leftovers() - self._before
        assert not more, f"files are left: {sorted(more)}"

    def kill_everything(self) -> None:
        """Clean up after a failed test."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
