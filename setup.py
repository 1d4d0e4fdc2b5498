"""Build the native parts with meson and put them into the package, under pyft/_native/lib.

The meson build folder build/meson is kept between builds, so that a second `pip install` compiles
only what changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MESON_BUILD = ROOT / "build" / "meson"
NATIVE_DIR = "pyft/_native/lib"
FOUND = ("cuda-include", "nvrtc-lib", "zstd-lib", "xxhash-lib")
FOUND_FOR_SOFTGPU = ("openblas-include", "openblas-lib")
# -Dparts=... and the like: what is left out is not needed either (tools/gpu/check.sh).
OPTIONS = os.environ.get("PYFT_MESON_OPTIONS", "").split()


def run(*command: str, env: dict[str, str] | None = None) -> None:
    print("setup.py:", " ".join(command), flush=True)
    result = subprocess.run(command, cwd=ROOT, env=env)
    if result.returncode:
        raise SystemExit(f"setup.py: [{' '.join(command)}] failed with [{result.returncode}]")


def configuration() -> str:
    """Everything whose change makes the configured build folder stale."""
    find = str(ROOT / "tools" / "build" / "find_deps.py")
    parts = [option for option in OPTIONS if option.startswith("-Dparts=")]
    soft = not parts or "softgpu" in parts[-1]
    wanted = (*FOUND, *FOUND_FOR_SOFTGPU) if soft else FOUND
    found = [subprocess.check_output([sys.executable, find, what], text=True) for what in wanted]
    return "\n".join([sys.executable, sys.version, *OPTIONS, *found])


def configure(env: dict[str, str]) -> None:
    stamp = MESON_BUILD / "pyft-configuration.txt"
    wanted = configuration()
    configured = (MESON_BUILD / "build.ninja").exists()
    if configured and stamp.exists() and stamp.read_text() == wanted:
        return
    # Isolated builds have their dependencies at a new path each time: `--reconfigure` looks again.
    again = ["--reconfigure"] if configured else []
    options = ["--prefix=/", f"-Dnative_dir={NATIVE_DIR}", "--buildtype=release", *OPTIONS]
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    run(*meson, "setup", *again, str(MESON_BUILD), str(ROOT), *options, env=env)
    stamp.write_text(wanted)


def build_native(destination: Path) -> None:
    """Compile, then install as `destination`/pyft/_native/lib/*."""
    env = dict(os.environ)
    # In an isolated build `ninja` is beside the temporary Python and may not be on the PATH.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    configure(env)
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    jobs = env.get("PYFT_BUILD_JOBS", str(os.cpu_count() or 1))
    run(*meson, "compile", "-C", str(MESON_BUILD), "-j", jobs, env=env)
    install = ["install", "-C", str(MESON_BUILD), "--no-rebuild", "--quiet"]
    run(*meson, *install, "--destdir", str(destination.resolve()), env=env)


class BuildWithNative(build_py):
    def run(self) -> None:
        super().run()
        build_native(Path(self.build_lib))


class PlatformWheel(bdist_wheel):
    """Contains Linux binaries, but no Python extension module: any Python 3, this platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithNative, "bdist_wheel": PlatformWheel},
)
