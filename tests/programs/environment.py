"""The environment of the programs: it sees that of this project, with its PyTorch."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
FOLDER = ROOT / "build" / "programs"
INSTALL_S = 1800
VERSIONS = """\
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


def pins(text: str) -> dict[str, str]:
    """Return names and versions of a requirements file."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    found = {}
    for line in filter(None, lines):
        name, _, version = line.partition("==")
        found[name] = version
    return found


def python(pins_file: str = "requirements.txt") -> Path:
    """Return the Python of an environment; make it if it is not there, or is out of date."""
    listed = HERE / pins_file
    venv = FOLDER / listed.stem
    inside, done = venv / "bin" / "python", venv / "installed"
    wanted = hashlib.sha256(listed.read_bytes()).hexdigest()
    if done.exists() and done.read_text() == wanted:
        return inside
    run = [sys.executable, "-m", "venv", "--without-pip", "--clear", str(venv)]
    subprocess.run(run, check=True, timeout=INSTALL_S)
    site = next((venv / "lib").glob("python3*")) / "site-packages"
    (site / "pyft-environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [str(inside), "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*install, "-r", str(listed)], check=True, timeout=INSTALL_S)
    done.write_text(wanted)
    return inside


def versions(inside: Path, names: Collection[str]) -> dict[str, str]:
    """Return the versions of packages there."""
    ask = [str(inside), "-c", VERSIONS, *sorted(names)]
    done = subprocess.run(ask, check=True, timeout=60, capture_output=True, text=True)
    return json.loads(done.stdout)
