"""Mechanisms that are shipped, a file each; and how one is found by its name."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

from pyft_lab.api import Mechanism
from pyft_lab.errors import SpecError

SHIPPED = {
    "none": "pyft_lab.api:Mechanism",
    "blocking": "pyft_lab.mechanisms.blocking:Blocking",
    "overlapped": "pyft_lab.mechanisms.overlapped:Overlapped",
    "dcp-async": "pyft_lab.mechanisms.dcp_async:DcpAsync",
    "memory": "pyft_lab.mechanisms.memory:Memory",
    "peers": "pyft_lab.mechanisms.peers:Peers",
    "xor-parity": "pyft_lab.mechanisms.xor_parity:XorParity",
    "pyft-snapshot": "pyft_lab.mechanisms.pyft:Snapshot",
    "pyft-jit": "pyft_lab.mechanisms.pyft:Jit",
    "pyft-all": "pyft_lab.mechanisms.pyft:All",
    "pyft-movable": "pyft_lab.mechanisms.pyft_movable:Movable",
    "pyft-dmr": "pyft_lab.mechanisms.pyft_dmr:Dmr",
    "pyft-flush": "pyft_lab.mechanisms.pyft_flush:Flush",
    "pyft-parity": "pyft_lab.mechanisms.pyft_parity:Parity",
    "torchft": "pyft_lab.mechanisms.torchft:Torchft",
}
REFERENCES = {"absences": "pyft_lab.mechanisms.absences:Absences"}  # not for matrices


def find(name: str) -> type[Mechanism]:
    """Return a shipped mechanism by its name, or a user's by FILE.py:CLASS."""
    file, colon, class_name = name.rpartition(":")
    if not colon:
        return shipped(name)
    path = Path(file)
    if not path.is_file():
        raise SpecError(f"mechanism [{name}]: there is no file [{file}]")
    module_name = f"pyft_lab_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Mechanism)):
        raise SpecError(f"mechanism [{name}]: [{class_name}] is no class derived from Mechanism")
    return found


def shipped(name: str) -> type[Mechanism]:
    known = SHIPPED | REFERENCES
    if name not in known:
        near = difflib.get_close_matches(name, SHIPPED, 1)
        hint = f"did you mean [{near[0]}]?" if near else f"there are {list(SHIPPED)}"
        raise SpecError(f"no mechanism [{name}]: {hint}")
    module, _, class_name = known[name].partition(":")
    found: type[Mechanism] = getattr(importlib.import_module(module), class_name)
    return found


def digest(name: str) -> str:
    """Return a hash of the files that a mechanism is made of."""
    found = hashlib.sha256()
    for part in find(name).__mro__[:-1]:
        found.update(Path(inspect.getfile(part)).read_bytes())
    return found.hexdigest()
