"""What the agent says of its decisions on stderr, as PYFT_LOG asks; servers have pyft/log.h.

Sentences for users go through pyft.agent.process.messages and come always.
"""

from __future__ import annotations

import logging
import os

from pyft.errors import ConfigError

TRACE = 5
LEVELS = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE,
}
MODULES = (
    "client",
    "ring",
    "server",
    "snapshot",
    "recovery",
    "softgpu",
    "flexccl",
    "agent",
    "plan",
)
FORMAT = "pyft: [%(levelname)s %(module_name)s pid %(process)d] %(message)s"


def parse(text: str) -> dict[str, int]:
    """Return the level of each module; raise ConfigError for what is no value of PYFT_LOG."""
    levels = dict.fromkeys(MODULES, logging.INFO)
    for part in text.split(",") if text else ():
        module, equals, level = part.rpartition("=")
        if level not in LEVELS or (equals and module not in MODULES):
            raise ConfigError(
                f"PYFT_LOG is [{text}], not LEVEL or MODULE=LEVEL, with commas between them; "
                f"levels: {', '.join(LEVELS)}; modules: {', '.join(MODULES)}"
            )
        levels.update({module: LEVELS[level]} if equals else dict.fromkeys(MODULES, LEVELS[level]))
    return levels


def logger(module: str) -> logging.Logger:
    """Return what a module of ours says its lines with."""
    return logging.getLogger(f"pyft.{module}")


class _OneWrite(logging.Handler):
    """Lines of processes do not mix. The terminal may be gone."""

    def emit(self, record: logging.LogRecord) -> None:
        record.levelname = record.levelname.lower()
        record.module_name = record.name.rpartition(".")[2]
        try:
            os.write(2, f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except OSError:
            self.handleError(record)


def set_up(text: str) -> None:
    """Take a value of PYFT_LOG; where it is none, nothing is said."""
    logging.addLevelName(TRACE, "TRACE")
    top = logging.getLogger("pyft")
    top.propagate = False
    logging.raiseExceptions = False
    handler = _OneWrite() if text else logging.NullHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    top.handlers = [handler]
    for module, level in parse(text).items():
        logger(module).setLevel(level)
