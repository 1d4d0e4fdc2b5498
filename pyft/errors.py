"""Errors a user can see: one sentence, the values in [brackets], and an exit code."""

from __future__ import annotations

NOT_INJECTED = 79  # of `pyft run`: the command ended well, and a fault asked for did not happen


class PyftError(Exception):
    """Base of everything pyft raises on purpose."""

    exit_code = 1


class UsageError(PyftError):
    """The command line asks for something impossible."""

    exit_code = 2


class ConfigError(PyftError):
    """A PYFT_* variable has a value that cannot be used."""

    exit_code = 2


class NativeMissingError(PyftError):
    """A native file that the installation should have brought is not there."""


class CommandError(PyftError):
    """The user's command could not be started; exit codes as in a shell."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class AgentLostError(PyftError):
    """The agent ended while the program was running."""


class AttachError(PyftError):
    """A client's attach request cannot be granted; `errno` goes back to the client."""

    def __init__(self, text: str, errno: int) -> None:
        super().__init__(text)
        self.errno = errno


class TraceError(PyftError):
    """There is no such job, file or process to show."""
