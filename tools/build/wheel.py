"""`make wheel`: the package as a manylinux wheel, for every Python 3, in build/wheel/.

The libraries use no Python, so one wheel is for all versions. auditwheel checks which glibc they
need, and puts in what is not on every machine (zstd, xxHash), with their licences. The BLAS stays a
package of its own.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "wheel"
PLATFORM = "manylinux_2_34_x86_64"
BLAS = "libscipy_openblas.so"
# What auditwheel puts in, by the packages of Debian that have it.
TAKEN = {"libzstd": "libzstd1", "libxxhash": "libxxhash0"}
MINUTES = 60


def run(*command: str, folder: Path = ROOT) -> str:
    """Run it and return what it says on stdout; exits with what it says where it fails."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"wheel: [{' '.join(command)}]:\n{done.stdout}{done.stderr}")
    return done.stdout


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of that name."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"wheel: [{folder}] has {len(found)} files [{pattern}], not one")
    return found[0]


def licences(package: Path) -> None:
    """Put in the licences of libraries that are taken from this machine."""
    for library, name in TAKEN.items():
        source = Path("/usr/share/doc") / name / "copyright"
        if not source.exists():
            raise SystemExit(f"wheel: no licence of {library}: [{source}] is missing")
        shutil.copy(source, only(package, "*.dist-info") / "licenses" / f"{name}.txt")


def without_this_machine(package: Path) -> None:
    """Let the BLAS be found in its package only, not where this build has found it."""
    library = package / "pyft" / "_native" / "lib" / "libsoftgpu.so"
    kept = "$ORIGIN:$ORIGIN/../../../scipy_openblas32/lib"
    run("patchelf", "--set-rpath", kept, str(library))


def build() -> Path:
    """Return the wheel."""
    shutil.rmtree(OUT, ignore_errors=True)
    plain, opened = OUT / "plain", OUT / "opened"
    pip = (sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps")
    run(*pip, "--wheel-dir", str(plain), ".")
    opened.mkdir()
    run(sys.executable, "-m", "wheel", "unpack", "--dest", str(opened), str(only(plain, "*.whl")))
    package = only(opened, "pyft-*")
    without_this_machine(package)
    licences(package)
    only(plain, "*.whl").unlink()
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", str(plain), str(package))
    repair = ("auditwheel", "repair", "--plat", PLATFORM, "--exclude", BLAS, "--strip")
    run(*repair, "--wheel-dir", str(OUT), str(only(plain, "*.whl")))
    shutil.rmtree(plain)
    shutil.rmtree(opened)
    return only(OUT, "*.whl")


def needs_beyond(shown: dict[str, Any]) -> list[str]:
    """Return what a wheel needs of a machine beyond its platform's promise, but for the BLAS.

    `shown`: what auditwheel says as JSON. Its text names the platform in any case: it is in the
    file's name. The tag over all is never the platform's: the BLAS is not in the wheel.
    """
    lacks = shown["policy_upgrades"].get(PLATFORM, {})
    found = [library for library in lacks.get("libs_to_eliminate", []) if library != BLAS]
    found += [name for names in lacks.get("blacklisted_symbols", {}).values() for name in names]
    if glibc_of(shown["sym_tag"]) > glibc_of(PLATFORM):
        found.append(shown["sym_tag"])
    if shown["unsupported_isa"]:
        found.append("a newer processor")
    return found


def glibc_of(tag: str) -> tuple[float, float]:
    """Return the version of glibc that a tag stands for; one without is newer than all."""
    version = re.fullmatch(r"manylinux_(\d+)_(\d+)_x86_64", tag)
    return (int(version[1]), int(version[2])) if version else (math.inf, 0)


def check(wheel: Path) -> None:
    """Exit where it is not for every Python, or is not what auditwheel promises."""
    if not re.fullmatch(rf"pyft-[\w.]+-py3-none-.*{PLATFORM}.*\.whl", wheel.name):
        raise SystemExit(f"wheel: [{wheel.name}] is not for py3-none-{PLATFORM}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    if modules := [name for name in names if re.search(r"\.(cpython|abi3)", name)]:
        raise SystemExit(f"wheel: {modules} are for one Python")
    if more := needs_beyond(json.loads(run("auditwheel", "show", "--json", str(wheel)))):
        raise SystemExit(f"wheel: [{wheel.name}] needs {more}, which [{PLATFORM}] does not promise")
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB, {len(names)} files")


if __name__ == "__main__":
    check(build())
