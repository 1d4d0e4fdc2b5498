"""`make test-image`: the steps of the Dockerfile, one after the other, without a builder of images.

Each stage gets a root of its own: this machine's as it is, and a file system in memory over it that
takes what the steps write. So steps run as they are written, apt-get's too, and change nothing here.
Two are not run as they are, since they would take long: PyTorch is linked from this environment, if
it has the version that the step names; a wheel of pyft is taken where --wheel names one. The user of
the image counts where this machine lets such a user have its Python. Needs root.

    make test-image IMAGE="--wheel build/wheel/pyft-0.1.0-....whl"
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "image"), str(ROOT / "tests" / "wheels")]

from install import needed  # noqa: E402
from recipe import Instruction, copied, instructions, source_files, words_of  # noqa: E402

STEP_S = 3600
OUTSIDE = "PYFT_IMAGE_NAMESPACE"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class StepError(Exception):
    """A step of the recipe fails."""


@dataclass
class Stage:
    """One stage of the recipe and its root."""

    name: str
    root: Path
    folder: str = "/"
    user: int = 0
    entry: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def inside(self, path: str) -> Path:
        """Return where a path of the image is here."""
        return self.root / os.path.join(self.folder, path).lstrip("/")

    def run(self, words: list[str]) -> str:
        """Run a command in it."""
        environment = {"PATH": f"{python_folder()}:{PATH}", "LANG": "C.UTF-8", "HOME": "/root"}
        user = ["setpriv", "--reuid", str(self.user), "--clear-groups"] if self.user else []
        done = subprocess.run(
            ["chroot", str(self.root), "sh", "-c", 'umask 022 && cd "$0" && exec "$@"', self.folder]
            + user
            + words,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        if done.returncode:
            raise StepError(f"[{' '.join(words)}] ended with [{done.returncode}]:\n{done.stdout}")
        return done.stdout


def python_folder() -> str:
    """Return the folder of the Python that stands for the image's: that below this environment."""
    return str(Path(sys.base_prefix) / "bin")


def site_packages(stage: Stage) -> Path:
    """Return where that Python has its packages."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return stage.inside(f"{sys.base_prefix}/lib/{version}/site-packages")


def new_stage(name: str, folder: Path) -> Stage:
    """Mount a root."""
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True)
    layers = f"lowerdir=/,upperdir={folder / 'upper'},workdir={folder / 'work'}"
    mount = ["mount", "-t", "overlay", "overlay", "-o", layers, str(folder / "root")]
    subprocess.run(mount, check=True, timeout=60)
    stage = Stage(name, folder / "root")
    for name in ("proc", "dev", "sys"):
        bind = ["mount", "--rbind", f"/{name}", str(stage.root / name)]
        subprocess.run(bind, check=True, timeout=60)
    return stage


def link_torch(stage: Stage, version: str) -> None:
    """Put PyTorch and what it requires there, as symbolic links."""
    if (here := metadata.version("torch")) != version:
        raise StepError(f"the image has torch {version}, this environment {here}")
    for name in needed("torch", set()):
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            place = site_packages(stage) / top
            if not place.exists() and not place.is_symlink():
                place.symlink_to(Path(distribution.locate_file(top)))


def run_step(stage: Stage, text: str, wheel: Path | None) -> str:
    """Carry out a RUN; return how."""
    if found := re.fullmatch(r"pip install --no-cache-dir torch==(\S+)", text):
        link_torch(stage, found[1])
        return "linked"
    if wheel and (found := re.fullmatch(r"pip wheel .* --wheel-dir (\S+) \.", text)):
        folder = stage.inside(found[1])
        folder.mkdir(parents=True)
        shutil.copy(wheel, folder)
        return f"taken: {wheel.name}"
    stage.run(["sh", "-ec", text])
    return "ran"


def copy(stage: Stage, text: str, stages: dict[str, Stage]) -> str:
    """Carry out a COPY."""
    what = copied(text)
    place = stage.inside(what.to)
    if what.stage:
        shutil.copytree(stages[what.stage].inside(what.source), place)
        return f"from [{what.stage}]"
    files = source_files(ROOT)
    for file in files:
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, place / file)
    return f"{len(files)} files"


def carry_out(steps: list[Instruction], folder: Path, wheel: Path | None) -> Stage:
    """Carry out all steps; return the last stage."""
    stages: dict[str, Stage] = {}
    stage = None
    for step in steps:
        said = ""
        if step.name == "FROM":
            name = step.value.partition(" AS ")[2] or str(len(stages))
            stage = stages[name] = new_stage(name, folder / name)
            continue
        assert stage is not None, step
        if step.name == "RUN":
            said = run_step(stage, step.value, wheel)
        elif step.name == "COPY":
            said = copy(stage, step.value, stages)
        elif step.name == "WORKDIR":
            stage.folder = step.value
            stage.inside(".").mkdir(parents=True, exist_ok=True)
        elif step.name == "USER":
            words = ["test", "-x", f"{python_folder()}/python3"]
            user = ["setpriv", "--reuid", step.value, "--clear-groups"]
            readable = subprocess.run([*user, *words], capture_output=True, timeout=60)
            stage.user = int(step.value) if readable.returncode == 0 else 0
            said = f"user {stage.user}"
        elif step.name == "ENTRYPOINT":
            stage.entry = words_of(step.value)
        elif step.name == "CMD":
            stage.command = words_of(step.value)
        else:
            raise StepError(f"[{step.name}] is not known here")
        print(f"image: {step.name} {step.value[:70]}: {said}", flush=True)
    assert stage is not None
    return stage


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="of pyft, so that none is made")
    args = parser.parse_args()
    if OUTSIDE not in os.environ:
        # Mounts of this process only: nothing is left when it ends.
        os.environ[OUTSIDE] = "1"
        words = ["unshare", "--mount", sys.executable, str(Path(__file__)), *sys.argv[1:]]
        os.execvp(words[0], words)
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        subprocess.run(["mount", "-t", "tmpfs", "image", name], check=True, timeout=60)
        try:
            stage = carry_out(instructions(ROOT / "Dockerfile"), folder, args.wheel)
            said = stage.run([*stage.entry, *stage.command])
            if "recovered" not in said:
                raise StepError(f"the image's command says:\n{said}")
        except StepError as error:
            print(f"image: {error}", file=sys.stderr)
            return 1
        finally:
            subprocess.run(["umount", "--recursive", "--lazy", name], check=False, timeout=60)
    print("image: its command loses a GPU, and goes on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
