"""Options that the user has given, and those of them that would do nothing in this job."""

from __future__ import annotations

import typer

from pyft.errors import UsageError

_BY_THE_USER = ("COMMANDLINE", "ENVIRONMENT")
_OF_PLACES = ("place", "address", "host")
_OF_SERVERS = (
    *("protect", "on_no_spare", "standby", "divergence", "metrics_port"),
    *("unsupported", "spans"),  # calls are named by the client, and spans are of recoveries
)
_NOTHING = ("none", "warn", 0)  # values by which such an option asks for nothing


def names(context: typer.Context) -> list[str]:
    """Return the options that stand in the command line, or come from the environment."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, one in sources.items() if one and one.name in _BY_THE_USER]


def check(context: typer.Context) -> None:
    """Raise UsageError for an option of `pyft run` that needs another one, which is not there."""
    given, values = names(context), context.params
    if "head" in given and not values["head"]:
        raise UsageError("--head is empty: say HOST:PORT of `pyft head`, or leave --head away")
    if not values["head"] and (of_places := [name for name in _OF_PLACES if name in given]):
        raise UsageError(f"{option(of_places[0])} is for one host of several: add --head HOST:PORT")
    if not values["direct"]:
        return
    for name in _OF_SERVERS:
        if name in given and values[name] not in _NOTHING:
            raise UsageError(f"{option(name)} needs servers: leave --direct away")


def option(name: str) -> str:
    """Return how an option is written."""
    return f"--{name.replace('_', '-')}"
