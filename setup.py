"""Build the native parts with meson and put them into the package, under pyft/_native/lib.

The meson build folder build/meson is kept between builds, so that a second `pip install` compiles
only what changed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools" / "build"))
import native_build  # noqa: E402 - where setuptools finds it only now


class BuildWithNative(build_py):
    def run(self) -> None:
        # Or modules would be packed that an earlier build has left there, and that are gone since.
        for package in {name.partition(".")[0] for name in self.packages or ()}:
            shutil.rmtree(Path(self.build_lib) / package, ignore_errors=True)
        super().run()
        native_build.configure()
        native_build.compile_native(["product"])
        native_build.install(Path(self.build_lib))


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
