"""Configure and compile the native parts in build/meson: for setup.py, and as a program for make.

native_build.py product     what gets installed
native_build.py tests       everything: tests, also those under sanitizers, and benchmarks
native_build.py NAME ...    single programs, such as ring_bench
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "meson"
NATIVE_DIR = "pyft/_native/lib"
MESON = (sys.executable, "-m", "mesonbuild.mesonmain")
FOUND = ("cuda-include", "nvrtc-lib", "zstd-lib", "xxhash-lib")
FOUND_FOR_SOFTGPU = ("openblas-include", "openblas-lib")
LINES = 20  # of progress, where no terminal shows them being overwritten


def options() -> list[str]:
    """Return what meson is told; the environment has the last word.

    Tests are left out unless they are asked for: they are more than half of the work.
    """
    asked = os.environ.get("PYFT_MESON_OPTIONS", "").split()
    usual = ["--prefix=/", "--buildtype=release", f"-Dnative_dir={NATIVE_DIR}", "-Dtests=false"]
    names = {word.split("=")[0] for word in asked}
    return [word for word in usual if word.split("=")[0] not in names] + asked


def environment() -> dict[str, str]:
    """In an isolated build `ninja` is beside the temporary Python and may not be on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # Without these ccache keeps nothing of what is compiled with a precompiled header.
    sloppiness = {"CCACHE_SLOPPINESS": "pch_defines,time_macros"}
    return sloppiness | os.environ | {"PATH": path}


def run(*command: str) -> None:
    print("build:", " ".join(command), flush=True)
    result = subprocess.run(command, cwd=ROOT, env=environment())
    if result.returncode:
        raise SystemExit(f"build: [{' '.join(command)}] failed with [{result.returncode}]")


def configuration() -> str:
    """Return everything whose change makes the configured folder stale."""
    find = str(Path(__file__).with_name("find_deps.py"))
    parts = [option for option in options() if option.startswith("-Dparts=")]
    soft = not parts or "softgpu" in parts[-1]  # what is left out is not needed either
    wanted = (*FOUND, *FOUND_FOR_SOFTGPU) if soft else FOUND
    found = [subprocess.check_output([sys.executable, find, what], text=True) for what in wanted]
    return "\n".join([sys.executable, sys.version, *options(), *found])


def told(folder: Path) -> str:
    """Return what meson was told when it configured the folder, also by hand since then."""
    path = folder / "meson-private" / "cmd_line.txt"
    return path.read_text() if path.exists() else ""


def configure(source: Path = ROOT, folder: Path = FOLDER) -> bool:
    """Configure the folder as asked now; return False where it is so already.

    meson keeps an option that it is not told any more. So nothing is reconfigured: the settings are
    deleted, and the objects are left, of which ninja knows by which command each was made.
    """
    stamp = folder / "pyft-configuration.txt"
    wanted = configuration()
    configured = (folder / "build.ninja").exists()
    if configured and stamp.exists() and stamp.read_text() == f"{wanted}\n{told(folder)}":
        return False
    shutil.rmtree(folder / "meson-private", ignore_errors=True)
    run(*MESON, "setup", str(folder), str(source), *options())
    stamp.write_text(f"{wanted}\n{told(folder)}")
    return True


def described(folder: Path, what: str) -> list[dict]:
    """Return what meson says of its targets or tests."""
    return json.loads((folder / "meson-info" / f"intro-{what}.json").read_text())


def files(targets: Iterable[dict], folder: Path) -> list[str]:
    """Return the files of targets, as ninja calls them."""
    return sorted(os.path.relpath(name, folder) for one in targets for name in one["filename"])


def goals(what: list[str], folder: Path) -> list[str]:
    """Return what ninja has to make; exits where there is no such thing."""
    targets = described(folder, "targets")
    if what == ["product"]:
        return files((one for one in targets if one["installed"]), folder)
    if what == ["tests"]:
        if not described(folder, "tests"):
            raise SystemExit(
                "build: meson has no test: PYFT_MESON_OPTIONS is "
                f"[{os.environ.get('PYFT_MESON_OPTIONS', '')}], without [-Dtests=true]"
            )
        return ["all", "meson-test-prereq"]
    if missing := set(what) - {one["name"] for one in targets}:
        raise SystemExit(f"build: there is no {sorted(missing)} in [{folder}]")
    return files((one for one in targets if one["name"] in what), folder)


def renew(folder: Path) -> None:
    """Let ninja run meson again where a meson.build has changed: goals are what meson says now."""
    command = ["ninja", "-C", str(folder), "--quiet", "build.ninja"]
    done = subprocess.run(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}build: meson failed with [{done.returncode}]")


def compile_native(what: list[str], folder: Path = FOLDER) -> None:
    """Let ninja work, and say how far it is."""
    renew(folder)
    jobs = os.environ.get("PYFT_BUILD_JOBS", str(os.cpu_count() or 1))
    # Separated as a list of Python, in which a comma is no end of a word.
    ninja = f"--ninja-args={goals(what, folder)}"
    command = [*MESON, "compile", "-C", str(folder), "-j", jobs, ninja]
    if sys.stdout.isatty():  # ninja overwrites its one line
        code = subprocess.run(command, env=environment()).returncode
    else:
        code = with_few_lines(command)
    if code:
        raise SystemExit(f"build: the compilation of {what} failed with [{code}]")


def with_few_lines(command: list[str]) -> int:
    """Run it, leaving out most lines that only say how far ninja is."""
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    last = 0
    for line in process.stdout or ():
        if line.startswith("INFO: "):  # meson says the whole command
            continue
        step = re.match(r"\[(\d+)/(\d+)\] ", line)
        now = int(step[1]) * LINES // int(step[2]) if step else last
        if not step or now != last:
            print(line, end="", flush=True)
        last = now
    return process.wait()


def install(destination: Path, folder: Path = FOLDER) -> None:
    """Put the product where it will be packed: as `destination`/pyft/_native/lib/*."""
    command = ["install", "-C", str(folder), "--no-rebuild", "--quiet"]
    run(*MESON, *command, "--destdir", str(destination.resolve()))


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    configure()
    compile_native(sys.argv[1:])
