"""tools/build/native_build.py: what a build is configured with, and what of it is compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "build"))

import native_build

MESON_BUILD = """
project('small', meson_version: '>=1.2')
make = find_program('make.sh')
custom_target('product', output: 'product', command: [make, '@OUTPUT@'], install: true,
              install_dir: get_option('native_dir'))
if get_option('tests')
  small = custom_target('small_test', output: 'small_test', command: [make, '@OUTPUT@'],
                        build_by_default: true)
  test('small', find_program('true'), depends: small)
  custom_target('small_bench', output: 'small_bench', command: [make, '@OUTPUT@'])
endif
"""
MESON_OPTIONS = """
option('parts', type: 'array', choices: ['softgpu', 'proxy'], value: ['softgpu', 'proxy'])
option('tests', type: 'boolean', value: true)
option('native_dir', type: 'string', value: 'lib')
"""


class Project:
    """A project whose targets write down when they are made."""

    def __init__(self, folder: Path) -> None:
        self.source, self.build, self.made = folder, folder / "b", folder / "made"
        (folder / "meson.build").write_text(MESON_BUILD)
        (folder / "meson_options.txt").write_text(MESON_OPTIONS)
        script = folder / "make.sh"
        script.write_text(f'#!/bin/sh\necho "${{1##*/}}" >> {self.made}\ntouch "$1"\n')
        script.chmod(0o755)

    def configure(self) -> bool:
        return native_build.configure(self.source, self.build)

    def compile(self, *what: str) -> list[str]:
        """Return what had to be made."""
        self.made.write_text("")
        native_build.compile_native(list(what), self.build)
        return sorted(self.made.read_text().split())

    def options(self) -> dict[str, object]:
        described = native_build.described(self.build, "buildoptions")
        return {option["name"]: option["value"] for option in described}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYFT_MESON_OPTIONS", "")
    return Project(tmp_path)


def test_tests_are_left_out_unless_asked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.configure()
    assert project.options()["tests"] is False
    assert project.options()["native_dir"] == native_build.NATIVE_DIR
    assert project.compile("product") == ["product"]
    with pytest.raises(SystemExit, match="meson has no test"):
        project.compile("tests")
    monkeypatch.setenv("PYFT_MESON_OPTIONS", "-Dtests=true")
    assert project.configure()
    assert project.compile("product") == [], "it was compiled already"
    assert project.compile("small_bench") == ["small_bench"]
    assert project.compile("tests") == ["small_test"]


def test_the_product_is_all_that_a_demo_compiles(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFT_MESON_OPTIONS", "-Dtests=true")
    assert project.configure()
    assert project.compile("product") == ["product"]


def test_targets_may_come_and_go_between_two_builds(project: Project) -> None:
    assert project.configure()
    assert project.compile("product") == ["product"]
    text = MESON_BUILD.replace("'product'", "'other'").replace("project('small',", "project('new',")
    (project.source / "meson.build").write_text(text)
    assert not project.configure(), "no option has changed"
    assert project.compile("product") == ["other"]
    (project.source / "meson.build").write_text(text + "boom(")
    with pytest.raises(SystemExit, match="(?s)boom.*meson failed with"):
        project.compile("product")


def test_an_option_that_is_gone_has_its_default_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFT_MESON_OPTIONS", "-Dparts=proxy -Dwerror=true --buildtype=debug")
    assert project.configure()
    told = project.options()
    assert (told["parts"], told["werror"], told["buildtype"]) == (["proxy"], True, "debug")
    monkeypatch.delenv("PYFT_MESON_OPTIONS")
    assert project.configure()
    told = project.options()
    assert told["parts"] == ["softgpu", "proxy"]
    assert (told["werror"], told["buildtype"]) == (False, "release")


def test_nothing_is_configured_twice(project: Project) -> None:
    assert project.configure()
    assert not project.configure()
    subprocess.run(
        [*native_build.MESON, "configure", str(project.build), "-Dtests=true"], check=True
    )
    assert project.configure(), "somebody has configured it by hand"
    assert project.options()["tests"] is False


def test_of_a_configuration_that_failed_nothing_is_kept(project: Project) -> None:
    good = (project.source / "meson.build").read_text()
    (project.source / "meson.build").write_text(good + "error('not yet')\n")
    with pytest.raises(SystemExit, match="failed"):
        project.configure()
    (project.source / "meson.build").write_text(good)
    assert project.configure()
    assert project.compile("product") == ["product"]


def test_who_does_not_exist_is_named(project: Project) -> None:
    project.configure()
    with pytest.raises(SystemExit, match="no_such_program"):
        project.compile("no_such_program")


def test_progress_is_a_line_now_and_then(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = "\n".join(f"[{n}/1000] Compiling {n}" for n in range(1, 1001))
    script = f"print('''{lines}'''); print('a warning'); import sys; sys.exit(3)"
    assert native_build.with_few_lines([sys.executable, "-c", script]) == 3
    shown = capfd.readouterr().out.splitlines()
    assert len(shown) == native_build.LINES + 1
    assert shown[-2:] == ["[1000/1000] Compiling 1000", "a warning"]


STAND_IN = "configure = lambda: None\ncompile_native = install = lambda _: None\n"


def test_no_module_is_packed_that_is_gone(tmp_path: Path) -> None:
    """setuptools leaves in its folder what an earlier build has put there."""
    root = Path(__file__).resolve().parents[2]
    files = {
        "setup.py": (root / "setup.py").read_text(),
        "pyproject.toml": "[project]\nname = 'p'\nversion = '1'\n"
        "[tool.setuptools]\npackages = ['pyft', 'pyft.cli']\n",
        "tools/build/native_build.py": STAND_IN,
        "pyft/__init__.py": "",
        "pyft/cli/__init__.py": "",
        "lib/pyft/cli/gone.py": "",
        "lib/other/stays.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    words = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", "lib"]
    subprocess.run(words, cwd=tmp_path, check=True)
    found = {str(path.relative_to(tmp_path / "lib")) for path in (tmp_path / "lib").rglob("*.py")}
    assert found == {"pyft/__init__.py", "pyft/cli/__init__.py", "other/stays.py"}
