"""Refuse reads of the environment beside the table, and files that the table has outrun.

C++ reads it by the generated headers only, Python reads PYFT_* by pyft/config.py only, and takes
os.environ and os.getenv out of no module: they are looked for by these names. A setting
whose accessor nothing uses is refused as well.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from include_graph import sources

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gen"))
import gen_faults  # noqa: E402
import gen_settings  # noqa: E402
import settings_table  # noqa: E402

GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
TAKEN_OUT = {"environ", "environb", "getenv", "getenvb"}
# Code of C++ whose settings a header has.
READ_IN = {"pyft": ("proxy", "shim"), "softgpu": ("softgpu",), "flexccl": ("flexccl",)}
# It runs in the script's Python before pyft can be imported.
OWN_READERS = {"pyft/config.py", "pyft/torch_support/site/sitecustomize.py"}


def check_cpp(root: Path) -> Iterator[str]:
    """Yield one sentence per read of the environment outside of the generated headers."""
    headers = {root / path for path in gen_settings.HEADERS.values()}
    for path in sources(root):
        if path in headers:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if GETENV.search(line.split("//")[0]):
                file = path.relative_to(root).as_posix()
                yield f"{file}:{number}: reads the environment: add a setting to settings.toml"


def read_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what is read from os.environ under a name that the code spells."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            owner, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            owner, key = node.func.value, node.args[0]
            if node.func.attr == "getenv":
                owner = ast.Attribute(value=owner, attr="environ")
        elif isinstance(node, ast.Compare):
            owner, key = node.comparators[0], node.left
        else:
            continue
        environ = isinstance(owner, ast.Attribute) and owner.attr == "environ"
        if environ and isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield node.lineno, key.value


def check_python(root: Path) -> Iterator[str]:
    """Yield one sentence per read of a PYFT_* variable beside pyft/config.py."""
    for path in sorted((root / "pyft").rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if file in OWN_READERS:
            continue
        tree = ast.parse(path.read_text(), filename=file)
        for line, name in read_names(tree):
            if name.startswith("PYFT_"):
                yield f"{file}:{line}: reads [{name}] itself: pyft/config.py does that"
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "os":
                for name in sorted({alias.name for alias in node.names} & TAKEN_OUT):
                    yield f"{file}:{node.lineno}: imports os.{name}, which has to be seen where it is read"


def check_used(root: Path, table: Path) -> Iterator[str]:
    """Yield one sentence per setting that C++ is said to read and does not."""
    for part, folders in READ_IN.items():
        code = "\n".join(
            path.read_text() for path in sources(root) if path.relative_to(root).parts[0] in folders
        )
        for one in settings_table.load(table):
            if part in one.parts and f"settings::{one.short.lower()}()" not in code:
                yield f"settings.toml: [{one.name}]: nothing in {'/, '.join(folders)}/ reads it"


def check_fresh(root: Path, table: Path) -> Iterator[str]:
    """Yield one sentence per file that is not what its table makes of it."""
    made = {"gen_settings": gen_settings.kept(table)}
    if (root / "faults.toml").is_file():
        made["gen_faults"] = gen_faults.kept(root / "faults.toml")
    for generator, files in made.items():
        for path, emit in files.items():
            if not (root / path).is_file() or (root / path).read_text() != emit():
                yield f"{path}: is stale: run tools/gen/{generator}.py --root ."


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    table = root / "settings.toml"
    problems = [*check_cpp(root), *check_python(root)]
    problems += [*check_used(root, table), *check_fresh(root, table)]
    for problem in problems:
        print(problem)
    print(f"settings: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
