"""`make test-wheel`: pyft's wheel in environments that have nothing else, without a compiler.

In one with PyTorch only, `pyft demo` has to work. In those of other Pythons, which are arguments,
pyft has to load its libraries. PyTorch is not downloaded again: it is linked from this environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
COMPILERS = ("cc", "c++", "gcc", "g++", "clang")
INSTALL_S, RUN_S = 900, 600
NATIVE = "from pyft import _native; print(_native.layout_sizes()['LogHeader'])"


class InstallError(Exception):
    """The wheel does not do what it has to."""


def run(*command: str | Path, environment: dict[str, str], seconds: int = RUN_S) -> str:
    """Run it and return all that it says; raises InstallError."""
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise InstallError(f"{command} ended with [{done.returncode}]:\n{done.stdout}")
    return done.stdout


def alone(venv: Path) -> dict[str, str]:
    """Return an environment that has the programs of that folder only."""
    environment = {"PATH": str(venv / "bin"), "HOME": str(venv), "LANG": "C.UTF-8"}
    if found := [name for name in COMPILERS if shutil.which(name, path=environment["PATH"])]:
        raise InstallError(f"{found} are in [{environment['PATH']}]")
    return environment


def needed(text: str, found: set[str]) -> set[str]:
    """Return the names of a requirement and of all that it requires, as they are here."""
    requirement = Requirement(text)
    found.add(str(requirement))
    for extra in ("", *requirement.extras):
        for one in metadata.distribution(requirement.name).requires or ():
            part = Requirement(one)
            if part.marker and not part.marker.evaluate({"extra": extra}):
                continue
            part.marker = None
            if str(part) not in found:
                needed(str(part), found)
    return {Requirement(one).name for one in found}


def link_torch(site: Path) -> None:
    """Put PyTorch and what it requires there, as hard links."""
    for name in needed("torch", set()):
        for file in metadata.distribution(name).files or ():
            source = Path(file.locate())
            if file.parts[0] == ".." or source.suffix == ".pyc" or not source.is_file():
                continue
            place = site / str(file)
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                os.link(source, place)


def make(python: str, wheel: Path, venv: Path) -> None:
    """Make an environment with the wheel."""
    run(python, "-m", "venv", venv, environment=dict(os.environ), seconds=INSTALL_S)
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = (venv / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, wheel, environment=outside, seconds=INSTALL_S)


def check_demo(wheel: Path, venv: Path) -> None:
    """Install beside PyTorch, lose a GPU."""
    make(sys.executable, wheel, venv)
    link_torch(next((venv / "lib").glob("python3*")) / "site-packages")
    environment = alone(venv)
    page = venv / "demo.html"
    said = run(venv / "bin" / "pyft", "demo", "--html", page, environment=environment)
    if "recovered" not in said or not page.exists():
        raise InstallError(said)
    print(said)


def check_python(python: str, wheel: Path, venv: Path) -> None:
    """Load the libraries, and run a job that uses no GPU."""
    make(python, wheel, venv)
    environment = alone(venv)
    inside = venv / "bin" / "python"
    run(inside, "-I", "-c", NATIVE, environment=environment)
    run(
        *(venv / "bin" / "pyft", "run", "--gpus", "soft:1", "--"),
        *(inside, "-c", "print('ran')"),
        environment=environment,
    )
    print(f"{python}: pyft runs")


def main() -> int:
    wheels = sorted((ROOT / "build" / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        print(f"test-wheel: {wheels}: make wheel first", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        try:
            check_demo(wheels[0], Path(folder) / "torch")
            for number, python in enumerate(sys.argv[1:]):
                check_python(python, wheels[0], Path(folder) / str(number))
        except InstallError as error:
            print(f"test-wheel: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
