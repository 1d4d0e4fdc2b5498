"""`--ledger kubernetes://NAMESPACE[/NAME]`: where the API server is, and the name of a job's Lease there."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pyft import config
from pyft.errors import UsageError
from pyft.hosts.kubernetes.api import Access, Api, Store
from pyft.hosts.kubernetes.ledger import KubernetesLedger
from pyft.hosts.wire.link import key_for

URL = "kubernetes://"
FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # of a pod's account
LABEL = "pyft-ledger"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_url(text: str) -> bool:
    """Say whether a ledger is in Kubernetes."""
    return text.startswith(URL)


def opened(url: str, secret: bytes, name: str, environment: Mapping[str, str]) -> KubernetesLedger:
    """Return the ledger of a job; raise UsageError. Nothing is asked yet."""
    namespace, _, job = url.removeprefix(URL).partition("/")
    if not _NAMESPACE.fullmatch(namespace):
        raise UsageError(f"[{namespace}] is no namespace of Kubernetes")
    job = job or f"pyft-{key_for(secret, 'name of a ledger').hex()[:16]}"
    if not _NAME.fullmatch(job):
        raise UsageError(f"[{job}] is no name of a Lease: at most 50 of [a-z], [0-9] and [-]")
    access = _access(environment)
    make: Callable[[], Store] = lambda: Api(access, namespace, {LABEL: job})  # noqa: E731
    return KubernetesLedger(make, job, secret, name)


def _access(environment: Mapping[str, str]) -> Access:
    """Return where the API server is and by what it is trusted: a pod is told so."""
    folder = Path(config.get_str("PYFT_KUBERNETES_ACCOUNT", environment) or FOLDER)
    url = config.get_str("PYFT_KUBERNETES_API", environment) or _of_pod(environment)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in ("https", "http") or parts.path not in ("", "/"):
        raise UsageError(f"[{url}] is no address of an API server: https://HOST[:PORT]")
    if parts.scheme == "http":
        if host not in _LOOPBACK:
            raise UsageError(f"[{url}] is not encrypted: only [127.0.0.1] may be asked so")
        return Access(host, port or 80, None, None)  # kubectl proxy has rights of its own
    return Access(host, port or 443, folder / "token", _trust(folder / "ca.crt"))


def _of_pod(environment: Mapping[str, str]) -> str:
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise UsageError("this is no pod of Kubernetes: say where its API is, PYFT_KUBERNETES_API")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _trust(authority: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=authority)
        # New Pythons want an identifier in it that authorities of clusters often lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificate [{authority}] cannot be used: {error}") from None
