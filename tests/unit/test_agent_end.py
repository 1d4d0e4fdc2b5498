"""The end of a job: which exit code the launcher is told, and when."""

from __future__ import annotations

import signal
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent import agent as agent_module
from pyft.agent.agent import Agent
from pyft.agent.command import NOTE, Command
from pyft.agent.process import messages
from pyft.agent.supervisor.link import Handover

PID = 7
WHY = "a server has died, and the head says nothing"


class Supervisor:
    """Keeps notes."""

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}
        self.killed: list[int] = []

    def keep(self, name: str, note: dict[str, Any], fds: object = ()) -> None:
        self.notes[name] = note

    def kill(self, pid: int, number: int) -> None:
        """Note it."""
        self.killed.append(number)


def command(status: int | None = None) -> Command:
    """Return one that was started, and has ended if it has a status."""
    made = Command(Supervisor(), {})  # type: ignore[arg-type]
    made.pid = PID
    if status is not None:
        made.process_ended(PID, status)
    return made


@pytest.mark.parametrize(("status", "code"), [(0, 1), (3 << 8, 3), (15, 143)])
def test_a_command_that_pyft_had_to_end_has_no_success(status: int, code: int) -> None:
    """A script may take SIGTERM for a wish: it saves its state and ends with 0."""
    ended = command()
    ended.fail(WHY)
    ended.keep()
    ended.process_ended(PID, status)
    assert (ended.stop_reason, ended.exit_code) == (WHY, code)
    again = command(status)  # of the next agent
    again.adopt(Handover(notes={NOTE: ended._supervisor.notes[NOTE]}))  # type: ignore[attr-defined]
    assert (again.stop_reason, again.exit_code) == (WHY, code)


def test_what_comes_behind_the_end_of_a_command_changes_nothing() -> None:
    ended = command(0)
    ended.fail(WHY)
    assert ended.exit_code == 0
    stopped = command()
    stopped.stop_reason = "the agent [pid 5] got SIGTERM"
    stopped.fail(WHY)
    stopped.process_ended(PID, 0)
    assert (stopped.exit_code, stopped.stop_reason[:9]) == (0, "the agent")
    asked = command()  # by the user
    asked.signal(15)
    asked.fail(WHY)
    asked.process_ended(PID, 0)
    assert asked.exit_code == 0


@pytest.mark.parametrize(
    ("numbers", "ends"),
    [
        (
            [signal.SIGUSR1, signal.SIGUSR2],
            False,
        ),  # for a snapshot of the script's own, as of Slurm's
        ([signal.SIGUSR1, signal.SIGTERM], True),
        ([signal.SIGINT, signal.SIGUSR1], True),
    ],
)
def test_a_signal_that_is_no_wish_to_end_leaves_the_job_protected(
    numbers: list[signal.Signals], ends: bool
) -> None:
    """Where the user wants the end, a client that is gone sends nobody back to an image."""
    asked = command()
    for number in numbers:
        asked.signal(number)
    assert asked.signalled is ends
    assert asked._supervisor.killed == numbers  # type: ignore[attr-defined]
    again = command()
    again.adopt(Handover(notes=asked._supervisor.notes))  # type: ignore[attr-defined]
    assert again.signalled is ends


def test_a_wish_by_the_terminal_is_known_and_not_passed_on() -> None:
    """A launcher of the command ends its ranks then, and not each kernel tells by which signal."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made: Any = object.__new__(Agent)
    made._launcher, made._command = ours, command()
    with ours, theirs:
        messages.send(theirs, "signal", number=int(signal.SIGINT), had=True)
        made._from_launcher()
        assert (made._command.signalled, made._command._supervisor.killed) == (True, [])
        messages.send(theirs, "signal", number=int(signal.SIGINT), had=False)
        made._from_launcher()
        assert made._command._supervisor.killed == [signal.SIGINT]


def test_an_agent_ends_a_job_that_cannot_go_on() -> None:
    made: Any = object.__new__(Agent)
    quiet = lambda *_: None  # noqa: E731
    made._loop, made._from_supervisor = SimpleNamespace(turn=quiet), quiet
    made._clients = SimpleNamespace(save_finished=quiet)
    made._command, made._images = command(), SimpleNamespace(turn=quiet, failed="")
    made._turn()
    assert not made._command.stop_reason
    made._images.failed = WHY
    made._turn()
    assert (made._command.stop_reason, made._command.failed) == (WHY, True)


def test_no_agent_is_the_last_one_before_the_launcher_knows_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that dies between the two words would have its success taken for the supervisor's death."""
    said: list[tuple[str, int]] = []
    monkeypatch.setattr(
        agent_module.messages, "send", lambda _, kind, exit_code: said.append((kind, exit_code))
    )
    monkeypatch.setattr(agent_module.process_tree, "end_descendants", lambda *_, **__: ([], True))
    monkeypatch.setattr(agent_module.report, "at_end", lambda _: [])
    quiet = lambda *_: None  # noqa: E731
    made: Any = object.__new__(Agent)
    made._command, made._images, made._timeline, made._launcher = command(0), None, None, None
    made._servers = SimpleNamespace(
        **dict.fromkeys(("end", "end_all", "report"), quiet),
        members={},
        requests=SimpleNamespace(missed=list),
    )
    made._operators = SimpleNamespace(sum_up=quiet)
    made._options = SimpleNamespace(head="h:1")
    made._meta = SimpleNamespace(values={}, write=lambda: said.append(("written", 0)))
    made._supervisor = SimpleNamespace(over=lambda: said.append(("over", 0)))
    assert made._end() == 0
    assert said == [("written", 0), ("ended", 0), ("over", 0)]
