"""A client was killed: whether all go back to an image, and that they do (docs/concepts/recovery-line.md)."""

from __future__ import annotations

import os
from typing import Any

from pyft.agent.command import Command
from pyft.agent.images import Images
from pyft.agent.job.job_meta import JobMeta
from pyft.agent.lifecycle.servers import Servers
from pyft.agent.members.member import Member
from pyft.agent.process import losses, messages
from pyft.agent.restoring import MOST_TRIES, NOTE, CriuError, RestoreError
from pyft.agent.supervisor.link import Handover, SupervisorLink


class GoingBack:
    """Of one agent. Without images nothing goes back."""

    def __init__(
        self,
        images: Images | None,
        command: Command,
        servers: Servers,
        meta: JobMeta,
        supervisor: SupervisorLink,
    ) -> None:
        self._images = images
        self._command = command
        self._servers = servers
        self._meta = meta
        self._supervisor = supervisor

    @property
    def image(self) -> dict[str, Any] | None:
        """The image to which all are to go back."""
        return self._images.back if self._images else None

    def because_of(self, member: Member) -> bool:
        """Say whether the job goes back to an image because a client has ended."""
        command = self._command
        if not self._images or command.stop_reason or command.signalled or self.image:
            return bool(self.image)
        if member.said_goodbye() or not losses.is_lost(member.pidfd):
            return False
        return self._images.client_lost(f"the {member.who} was killed")

    def is_over(self) -> bool:
        """Say whether the command has ended, and not because a client was killed."""
        if not self._command.has_ended:
            return False
        if not self._images or not self._command.ended[self._command.pid]:
            return True
        if self._images.waits:
            return False
        members = list(self._servers.members.values())
        return not any(self.because_of(m) for m in members if not m.client_gone and m.is_gone())

    def go(self, record: dict[str, Any]) -> None:
        """Put everything back, and let the next agent take over; on failure the job ends.

        The note of the restore is kept by now: an agent that dies at any place has begun it.
        """
        assert self._images
        self._meta.ended.forget({int(id) for id in record["clients"]})
        self._command.keep()
        for id in list(self._servers.members):
            self._supervisor.drop(f"client-{id}")
        try:
            self._images.restoring(record, self.reaped).run()
        except CriuError as error:
            if not self._tries_again(record, error):
                return
        except (RestoreError, OSError) as error:
            self._say_lost(record, error)
            return
        self._supervisor.working()
        messages.flush_and_exit(0)

    def _tries_again(self, record: dict[str, Any], error: CriuError) -> bool:
        """Have the next agent begin again, with the memory of the image; say whether it may."""
        tries = int(record.get("tries", 0)) + 1
        if tries >= MOST_TRIES:
            self._say_lost(record, error)
            return False
        messages.say(
            f"--movable: the image of step [{record['step']}] is restored once more: {error}"
        )
        self._supervisor.keep(NOTE, record | {"tries": tries})
        return True

    def _say_lost(self, record: dict[str, Any], error: Exception) -> None:
        messages.say(f"--movable: the image of step [{record['step']}] is lost: {error}")

    def go_again(self, record: dict[str, Any], handover: Handover) -> None:
        """The agent before has died while it put everything back: begin again, return on failure.

        If the job was to stop, nothing is put back.
        """
        assert self._images
        self._images.begin_again(record, handover)
        self._command.adopt(handover)
        self._meta.ended.adopt(handover.notes)
        if self._command.stop_reason:
            return
        for name in handover.notes:  # of those that are to end, and of some that are back
            if name.startswith("client-"):
                self._supervisor.drop(name)
        self.go(record)

    def reaped(self) -> dict[int, int]:
        """Return what has ended; nothing else is of interest any more."""
        while got := self._supervisor.received():
            message, fds = got
            if message["kind"] == "ended":
                self._command.process_ended(message["pid"], message["status"])
            for fd in fds:
                os.close(fd)
        return self._command.ended
