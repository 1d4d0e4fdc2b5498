"""`--ledger etcd://HOST:PORT[,HOST:PORT…][/JOB]`: where etcd is, and under which name a job lies there."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping

from pyft import config
from pyft.errors import UsageError
from pyft.hosts.etcd.gateway import Gateway, Store
from pyft.hosts.etcd.ledger import EtcdLedger
from pyft.hosts.wire.link import address_of, key_for

PLAIN, TLS = "etcd://", "etcds://"
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_url(text: str) -> bool:
    """Say whether a ledger is in etcd, and no file."""
    return text.startswith((PLAIN, TLS))


def opened(url: str, secret: bytes, name: str, environment: Mapping[str, str]) -> EtcdLedger:
    """Return the ledger of a job; raise UsageError. Nothing is asked yet."""
    members, _, job = url.removeprefix(PLAIN).removeprefix(TLS).partition("/")
    where = [address_of(one) for one in members.split(",")]
    job = job or key_for(secret, "name of a ledger").hex()[:16]
    if not _JOB.fullmatch(job):
        raise UsageError(f"[{job}] is no name of a job: letters, digits, and [._-]")
    tls = _tls(environment) if url.startswith(TLS) else None
    make: Callable[[], Store] = lambda: Gateway(where, tls)  # noqa: E731
    return EtcdLedger(make, job, secret, name)


def _tls(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Return what etcd is trusted by, and what it trusts."""
    authority = config.get_str("PYFT_ETCD_CA", environment)
    own = config.get_str("PYFT_ETCD_CERT", environment)
    key = config.get_str("PYFT_ETCD_KEY", environment)
    try:
        context = ssl.create_default_context(cafile=authority)
        if own:
            context.load_cert_chain(own, key)
    except (OSError, ssl.SSLError) as error:
        named = [one for one in (authority, own, key) if one]
        raise UsageError(f"certificates {named} cannot be used: {error}") from None
    return context
