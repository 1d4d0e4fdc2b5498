"""The recipe of the container's image: linted, and true to the rest of this folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("dockerfile_parse", reason="[dockerfile-parse]: requirements-dev.txt")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "image"))
import recipe  # noqa: E402

STEPS = recipe.instructions(ROOT / "Dockerfile")


def values(name: str) -> list[str]:
    return [step.value for step in STEPS if step.name == name]


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("[hadolint]: requirements-dev.txt")
    done = subprocess.run(
        [hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_pytorch_is_that_of_this_folder() -> None:
    (wanted,) = re.findall(r"^torch==(\S+)", (ROOT / "requirements-dev.txt").read_text(), re.M)
    assert [run for run in values("RUN") if f"torch=={wanted}" in run.split()]
    assert len([run for run in values("RUN") if "torch==" in run]) == 1


def test_all_that_a_build_needs_is_copied() -> None:
    files = set(recipe.source_files(ROOT))
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    kept = {file for file in listed.stdout.splitlines() if (ROOT / file).is_file()}
    assert kept <= files
    assert {"setup.py", "meson.build", "settings.toml"} <= files


@pytest.mark.parametrize(
    ("file", "left_out"),
    [
        ("build/meson/build.ninja", True),
        ("pyft/__pycache__/x.pyc", True),
        (".venv/bin/python", True),
        ("pyft/_native/lib/libsoftgpu.so", True),
        ("tools/build/native_build.py", False),
        ("pyft/_native/linux.py", False),
        (".ci/run", False),
    ],
)
def test_what_is_made_here_is_left_out(file: str, left_out: bool) -> None:
    assert recipe.is_ignored(file, recipe.ignored(ROOT)) is left_out


def test_both_stages_have_the_same_base_and_the_second_takes_from_the_first() -> None:
    bases = [value.partition(" AS ") for value in values("FROM")]
    assert len({base for base, _, _ in bases}) == 1
    taken = [recipe.copied(value).stage for value in values("COPY")]
    assert [stage for stage in taken if stage] == [name for _, _, name in bases if name]


def test_the_image_runs_as_a_user_and_shows_the_demo() -> None:
    assert values("USER") == ["10001"]
    assert recipe.words_of(values("ENTRYPOINT")[0]) == ["pyft"]
    assert recipe.words_of(values("CMD")[0]) == ["demo"]
