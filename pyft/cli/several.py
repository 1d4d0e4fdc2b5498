"""`pyft head` and `pyft host`: a job on several hosts."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pyft import config
from pyft.agent.process import messages
from pyft.errors import PyftError, UsageError
from pyft.hosts import slurm
from pyft.hosts.etcd import opening as etcd
from pyft.hosts.head.elected import ElectedLedger
from pyft.hosts.head.head import Head
from pyft.hosts.head.holders import Topology
from pyft.hosts.head.ledger import FileLedger, LedgerLost
from pyft.hosts.kubernetes import opening as kubernetes
from pyft.hosts.spare.spare import Spare
from pyft.hosts.wire import link
from pyft.images import criu

LEASE_S = 15.0
ELECTED_AT = 1 / 3  # of it: how long a head decides that its ledger does not confirm
BACKLOG = 64


def head(
    places: Annotated[int, typer.Option(min=1, max=4096, help="How many hosts train.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT")] = "0.0.0.0:29471",
    ledger: Annotated[
        str,
        typer.Option(
            metavar="FILE|etcd://HOST:PORT[,…][/JOB]|kubernetes://NAMESPACE[/JOB]",
            help="Where all decisions are kept: another head goes on with them.",
        ),
    ] = "",
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
    mttf: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="HOURS",
            help="Mean time until a host of the job is lost: images as often as costs least.",
        ),
    ] = 0.0,
) -> None:
    """Decide for all hosts of one job. Runs on a host that does not train."""
    config.check()
    if image_every and mttf:
        raise UsageError("--image-every and --mttf both say how often: give one of them")
    where, secret = link.address_of(listen), link.token()
    domains = Topology.read(topology) if topology else Topology()
    how = {
        "lease": lease,
        "every": image_every,
        "copies": copies,
        "topology": domains,
        "mttf_s": 3600.0 * mttf,
    }
    try:
        if kubernetes.is_url(ledger):
            code = _one_of_several(where, secret, places, kubernetes.opened, ledger, how)
        elif etcd.is_url(ledger):
            code = _one_of_several(where, secret, places, etcd.opened, ledger, how)
        else:
            code = _alone(where, secret, places, Path(ledger) if ledger else None, how)
    except OSError as error:
        raise PyftError(f"the head cannot go on: {error}") from None
    messages.flush_and_exit(code)


@contextlib.contextmanager
def _beginning(where: tuple[str, int]) -> Iterator[None]:
    """Raise UsageError where what the head begins with cannot be used: a file, or its address."""
    try:
        yield
    except OSError as error:
        what = error.filename or f"{where[0]}:{where[1]}"
        raise UsageError(f"[{what}] cannot be used: {error.strerror}") from None


def _alone(
    where: tuple[str, int], secret: bytes, places: int, path: Path | None, how: dict[str, Any]
) -> int:
    """Be the only head, whose ledger is a file; return the job's exit code."""
    with _beginning(where):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
        listener, log = socket.create_server(where, backlog=BACKLOG), FileLedger(path)
    _say_waits(where, places)
    if not path:
        messages.say(
            "head: without --ledger no other head can go on: if this one dies the job ends"
        )
    try:
        return Head(listener, secret, places, log, **how).run()
    except LedgerLost as error:
        raise PyftError(f"{error}: start the head again when that is mended") from None


def _one_of_several(
    where: tuple[str, int],
    secret: bytes,
    places: int,
    opened: Callable[[str, bytes, str, Mapping[str, str]], ElectedLedger],
    url: str,
    how: dict[str, Any],
) -> int:
    """Be the head whenever it is elected; return the job's exit code."""
    name = f"{socket.gethostname()}:{where[1]}, process {os.getpid()}"
    seconds, is_first = how["lease"] * ELECTED_AT, True
    while True:
        with _beginning(where):
            log = opened(url, secret, name, os.environ)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with _beginning(where):
                listener.bind(where)  # it takes connections only when it decides
            try:
                log.stand(seconds, messages.say, is_first)
                with _beginning(where):
                    listener.listen(BACKLOG)
                _say_waits(where, places)
                return Head(listener, secret, places, log, **how).run()
            except LedgerLost as error:
                messages.say(f"head: decides no more: {error}; it stands for election again")
                is_first = False
            finally:
                log.close()


def _say_waits(where: tuple[str, int], places: int) -> None:
    messages.say(f"head: waits at [{where[0]}:{where[1]}] for [{places}] places")


def host(
    head: Annotated[
        str, typer.Option(metavar="HOST:PORT[,…]", help="Where `pyft head` is, or several.")
    ],
    address: Annotated[
        str,
        typer.Option(
            help="IPv4 address at which others reach this host (default: that from which it "
            "reaches the head)."
        ),
    ] = "",
    host: Annotated[str, typer.Option(help="Its name (default: Slurm's, or the system's).")] = "",
    folder: Annotated[Path | None, typer.Option(help="Where copies of images lie.")] = None,
) -> None:
    """Be a spare host: keep copies of images, and take the place of a host that is lost."""
    config.check()
    _check_criu()
    name, address = _name_of(host), _address_of(head, address)
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="pyft-host-", dir=folder) as own:
        spare = Spare(head, link.token(), name, address, Path(own))
        code = spare.run()
    messages.flush_and_exit(code)


def _end(number: int, _: object) -> None:
    """End at a signal, but not before the images are removed: they are the memory of processes."""
    raise SystemExit(128 + number)


def place_of(head: str, place: int | None, host: str, address: str) -> dict[str, Any]:
    """Return the options of a place; raise UsageError where it could not be one."""
    link.token()
    _check_criu()
    where = {"host": _name_of(host), "address": _address_of(head, address)}
    return {"head": head, "place": slurm.place(os.environ) if place is None else place, **where}


def _name_of(host: str) -> str:
    return host or slurm.host(os.environ) or socket.gethostname()


def _address_of(head: str, address: str) -> str:
    """Return the address at which others reach this host; raise UsageError without one."""
    heads = link.addresses_of(head)
    if not address:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.connect(heads[0])  # nothing is sent
                address = sock.getsockname()[0]
        except OSError as error:
            raise UsageError(f"the head at [{head}] cannot be reached: {error}") from None
        if ipaddress.IPv4Address(address).is_loopback:
            raise UsageError("--head needs --address, at which the other hosts reach this one")
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise UsageError(f"--address [{address}] is no IPv4 address") from None
    return address


def _check_criu() -> None:
    if why := criu.lacks(criu.find()):
        raise UsageError(f"several hosts need images of processes: {why}")
