"""`pyft head` and `pyft host`: a job on several hosts."""

from __future__ import annotations

import ipaddress
import socket
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from pyft import config
from pyft.agent.process import messages
from pyft.errors import UsageError
from pyft.hosts.head.head import Head
from pyft.hosts.head.holders import Topology
from pyft.hosts.head.ledger import Ledger
from pyft.hosts.spare.spare import Spare
from pyft.hosts.wire import link
from pyft.images import criu

LEASE_S = 15.0


def head(
    places: Annotated[int, typer.Option(min=1, max=4096, help="How many hosts train.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT")] = "0.0.0.0:29471",
    ledger: Annotated[
        Path | None, typer.Option(help="File with all decisions: another head goes on with it.")
    ] = None,
    lease: Annotated[
        float,
        typer.Option(min=1.0, max=120.0, help="Seconds of silence after which a host is lost."),
    ] = LEASE_S,
    image_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds between two images; 0: as their cost allows.")
    ] = 0.0,
    copies: Annotated[
        int,
        typer.Option(min=1, max=8, help="Spare hosts that keep each image, in other domains."),
    ] = 1,
    topology: Annotated[
        Path | None,
        typer.Option(help="File with lines HOST DOMAIN: hosts of one domain fail together."),
    ] = None,
) -> None:
    """Decide for all hosts of one job. Runs on a host that does not train."""
    config.check()
    where, secret = link.address_of(listen), link.token()
    domains = Topology.read(topology) if topology else Topology()
    try:
        if ledger:
            ledger.parent.mkdir(parents=True, exist_ok=True)
        listener, log = socket.create_server(where, backlog=64), Ledger(ledger)
    except OSError as error:
        raise UsageError(f"[{error.filename or listen}] cannot be used: {error.strerror}") from None
    messages.say(f"head: waits at [{listen}] for [{places}] places")
    if not ledger:
        messages.say(
            "head: without --ledger no other head can go on: if this one dies the job ends"
        )
    how = {"lease": lease, "every": image_every, "copies": copies, "topology": domains}
    messages.flush_and_exit(Head(listener, secret, places, log, **how).run())


def host(
    head: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where `pyft head` is.")],
    address: Annotated[str, typer.Option(help="IPv4 address at which others reach this host.")],
    host: Annotated[str, typer.Option(help="Its name (default: the system's).")] = "",
    folder: Annotated[Path | None, typer.Option(help="Where copies of images lie.")] = None,
) -> None:
    """Be a spare host: keep copies of images, and take the place of a host that is lost."""
    config.check()
    _check_criu()
    where = link.address_of(head)
    _check_address(address)
    with tempfile.TemporaryDirectory(prefix="pyft-host-", dir=folder) as own:
        spare = Spare(where, link.token(), host or socket.gethostname(), address, Path(own))
        code = spare.run()
    messages.flush_and_exit(code)


def place_of(head: str, place: int, host: str, address: str) -> dict[str, Any]:
    """Return the options of a place; raise UsageError where it could not be one."""
    link.address_of(head)
    link.token()
    _check_criu()
    if not address:
        raise UsageError("--head needs --address, at which the other hosts reach this one")
    _check_address(address)
    name = host or socket.gethostname()
    return {"head": head, "place": place, "host": name, "address": address}


def _check_address(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise UsageError(f"--address [{address}] is no IPv4 address") from None


def _check_criu() -> None:
    if why := criu.lacks(criu.find()):
        raise UsageError(f"several hosts need images of processes: {why}")
