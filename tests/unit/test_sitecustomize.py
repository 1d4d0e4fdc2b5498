"""The hooks that `pyft run` puts into the program's Python, on a stand-in for torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyft.agent.job.environment import SITE_FOLDER

TORCH = {
    "__init__.py": """
        class _C:
            enabled = True
            def _set_cudnn_enabled(value): _C.enabled = value
        class Prop:
            def __init__(self, setter): self.setter = setter
            def __get__(self, of, kind=None): return _C.enabled
            def __set__(self, of, value): self.setter(value)
        class Cudnn:
            class m: pass
            m = m()
            enabled = Prop(_C._set_cudnn_enabled)
        class backends:
            cudnn = Cudnn()
    """,
    "optim/__init__.py": "",
    "optim/optimizer.py": """
        before, after = [], []
        def register_optimizer_step_pre_hook(hook): before.append(hook)
        def register_optimizer_step_post_hook(hook): after.append(hook)
        def step():
            for hook in before + after: hook(None, (), {})
    """,
}
SHIM = """
#include <unistd.h>
int pyft_gate(void) { return write(1, "gate\\n", 5); }
int pyft_cut(void) { return write(1, "cut\\n", 4); }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TORCH.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("\n".join(line[8:] for line in text.splitlines()))
    return tmp_path


@pytest.fixture
def compile_shim(folder: Path) -> Callable[[str], str]:
    """Makes a stand-in for the shim's library out of C, and says where it is."""
    compiler = shutil.which("cc") or pytest.skip("[compiler]: no C compiler")

    def compiled(text: str) -> str:
        source, library = folder / "shim.c", folder / "shim.so"
        source.write_text(text)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        return str(library)

    return compiled


def run(folder: Path, program: str, **environment: str) -> str:
    env = os.environ | {"PYTHONPATH": f"{SITE_FOLDER}:{folder}", **environment}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_cudnn_is_off_on_soft_gpus_only(folder: Path) -> None:
    program = "import torch; print(torch.backends.cudnn.enabled)"
    assert run(folder, program, PYFT_JOB="j", PYFT_GPUS="soft:1") == "False\n"
    assert run(folder, program, PYFT_JOB="j", PYFT_GPUS="real") == "True\n"
    assert run(folder, program, PYFT_GPUS="soft:1") == "True\n"


@pytest.mark.parametrize(
    "before",
    [
        "find_spec('torch')",  # only asked for, as by libraries that can do without it
        "find_spec('torch'); find_spec('torch'); find_spec('torch.optim.optimizer')",
        "FAIL = True\ntry: import torch\nexcept ImportError: del builtins.FAIL",
    ],
)
def test_a_module_is_found_before_it_is_imported(folder: Path, before: str) -> None:
    init = folder / "torch" / "__init__.py"
    init.write_text(
        "import builtins\nif hasattr(builtins, 'FAIL'): raise ImportError\n" + init.read_text()
    )
    program = f"import builtins\nfrom importlib.util import find_spec\n{before}\n"
    program = program.replace("FAIL = True", "builtins.FAIL = True")
    program += "import torch; print(torch.backends.cudnn.enabled, set(vars(torch.__loader__)))"
    printed = run(folder, program, PYFT_JOB="j", PYFT_GPUS="soft:1")
    assert printed in ("False {'name', 'path'}\n", "False {'path', 'name'}\n")


def test_one_loader_may_be_found_several_times_and_load_several_modules(folder: Path) -> None:
    """As that of a zip file."""
    program = """
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module): module.__dict__["backends"] = backends
class backends:
    class cudnn: enabled = True
class Finder:
    loader = Loader()
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self.loader) if name in ("torch", "other") else None
sys.meta_path.insert(1, Finder())
find_spec("torch"), find_spec("torch")
import other; print(backends.cudnn.enabled)
import torch; print(backends.cudnn.enabled, vars(Finder.loader))
"""
    assert run(folder, program, PYFT_JOB="j", PYFT_GPUS="soft:1") == "True\nFalse {}\n"


def test_finders_that_ask_all_others_find_it(folder: Path) -> None:
    """As those of other tools that want to know of an import: each leaves itself out only."""
    program = """
import sys
from importlib.util import find_spec
class Other:
    asks = False
    def find_spec(self, name, path=None, target=None):
        if self.asks or name != "torch": return None
        self.asks = True
        found = find_spec(name)
        self.asks = False
        return found
sys.meta_path.insert(0, Other())
import torch; print(torch.backends.cudnn.enabled)
sys.meta_path.append(Other())
"""
    assert run(folder, program, PYFT_JOB="j", PYFT_GPUS="soft:1") == "False\n"


def test_programs_that_turn_cudnn_on_are_told(folder: Path) -> None:
    program = (
        "import torch; c = torch.backends.cudnn; c.enabled = c.enabled = True; print(c.enabled)"
    )
    env = os.environ | {"PYTHONPATH": f"{SITE_FOLDER}:{folder}", "PYFT_JOB": "j"}
    for gpus, off in (("soft:1", True), ("0", False)):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=env | {"PYFT_GPUS": gpus},
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert done.stdout == f"{not off}\n"
        assert done.stderr == ("pyft: cuDNN stays off: a soft GPU has none\n" if off else "")


def test_steps_are_marked(folder: Path, compile_shim: Callable[[str], str]) -> None:
    library = compile_shim(SHIM)
    program = "import torch.optim.optimizer as o; o.step()"
    assert run(folder, program, PYFT_JOB="j", LD_PRELOAD=library) == "gate\ncut\n"


# A device of three whose next cut is snapshotted; another thread is faster once.
COUNTING_SHIM = """
#include <stdint.h>
#include <stdio.h>
int pyft_gate(void) { return 0; }
int pyft_cut(void) { puts("cut"); return fflush(stdout); }
static uint64_t next = 7;
uint64_t pyft_next_seq(int device) { return device == 1 ? next++ : 0; }
int pyft_cut_scope(int device, const void* scope, uint64_t bytes, uint64_t seq) {
  printf("%d %d %d %d\\n", device, scope != 0, (int)bytes, (int)seq);
  fflush(stdout);
  return seq == 7 ? 2 : 0;
}
"""


def test_what_is_live_is_found_out_for_snapshotted_cuts(
    folder: Path, compile_shim: Callable[[str], str]
) -> None:
    library = compile_shim(COUNTING_SHIM)
    program = """
import sys, torch, torch.optim.optimizer as o
class cuda:
    count = 3
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: cuda.count)
torch.cuda = cuda
block = {"state": "active_allocated", "address": 5, "requested_size": 3}
segment = {"device": 1, "address": 0, "total_size": 9, "blocks": [block]}
torch._C._cuda_memorySnapshot = lambda pool: {"segments": [segment]}
o.step()
cuda.count = 1
o.step()
"""
    printed = run(folder, program, PYFT_JOB="j", LD_PRELOAD=library)
    assert printed == "0 0 0 0\n1 1 56 7\n1 1 56 8\n2 0 0 0\ncut\n"


def test_a_step_needs_no_python_of_pyfts_own_age(
    folder: Path, compile_shim: Callable[[str], str]
) -> None:
    """Python 3.9, for which there is a torch, has a zip() without `strict`."""
    library = compile_shim(DATING_SHIM)
    program = f"import builtins\nours = zip\nbuiltins.zip = lambda *all: ours(*all)\n{DATED}"
    printed = run(folder, f"{program}step(first, 1, 2)", PYFT_JOB="j", LD_PRELOAD=library)
    assert printed == "new new .\n"


# Prints the numbers behind the blocks of a scope with one pool.
DATING_SHIM = """
#include <stdint.h>
#include <stdio.h>
int pyft_gate(void) { return 0; }
int pyft_cut(void) { return 0; }
static uint64_t next = 6;
uint64_t pyft_next_seq(int device) { return ++next; }
int pyft_cut_scope(int device, const void* scope, uint64_t bytes, uint64_t seq) {
  const uint64_t* words = scope;
  for (uint64_t i = 4 + 2 * words[1]; i < bytes / 8; ++i)
    words[i] >> 63 ? printf("new ") : printf("%d ", (int)words[i]);
  puts(".");
  return fflush(stdout);
}
"""
DATED = """
import torch, torch.optim.optimizer as o
class cuda:
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
torch.cuda = cuda
blocks = []
torch._C._cuda_memorySnapshot = lambda pool: {
    "segments": [{"device": 0, "address": 0, "total_size": 99, "blocks": blocks}]}
class Storage:
    def __init__(self, at): self.at = at
    def data_ptr(self): return self.at
class Gradient:
    def __init__(self, at): self.at = at
    def untyped_storage(self): return Storage(self.at)
class Sharded:
    def __init__(self, at): self._local_tensor = Gradient(at)
class Sparse:
    def untyped_storage(self): raise NotImplementedError
class Parameter:
    grad = None
class Optimizer:
    def __init__(self, *parameters): self.param_groups = [{"params": list(parameters)}]
a, b, c = Parameter(), Parameter(), Parameter()
first, second = Optimizer(a, b), Optimizer(c)
def step(optimizer, *places):
    blocks[:] = [{"state": "active_allocated", "address": at, "requested_size": 1} for at in places]
    for hook in o.after: hook(optimizer, (), {})
"""


def test_blocks_in_which_gradients_change_places_are_dated(
    folder: Path, compile_shim: Callable[[str], str]
) -> None:
    library = compile_shim(DATING_SHIM)
    cases = (
        ("step(first, 1, 2, 3)", "new new new ."),  # no gradients
        ("a.grad, b.grad = Gradient(1), Sharded(2); step(first, 1, 2, 3)", "8 8 new ."),
        ("a.grad, b.grad = Gradient(1), Gradient(2); step(first, 1, 2, 3)", "8 8 new ."),
        ("a.grad, b.grad = Gradient(2), Gradient(1); step(first, 1, 2, 3)", "10 10 new ."),
        (
            "a.grad = Sparse(); step(first, 1, 2, 3)",
            "10 new new .",
        ),  # another tensor is in the second
        ("step(first, 1, 3)", "10 new ."),
        ("a.grad = Gradient(2); step(first, 1, 2, 3)", "10 13 new ."),
        ("c.grad = Gradient(3); step(second, 1, 2, 3)", "10 13 14 ."),  # of both optimizers
        ("a.grad = c.grad = None; step(first, 1, 2, 3)", "10 new new ."),
        ("step(first, 1, 2, 3)", "10 new new ."),  # what no optimizer names
    )
    program = DATED + "\n".join(line for line, _ in cases)
    printed = run(folder, program, PYFT_JOB="j", LD_PRELOAD=library)
    assert printed.splitlines() == [wanted for _, wanted in cases]


def test_what_no_optimizer_names_is_unsettled_until_it_has_stayed_for_eight_cuts(
    folder: Path, compile_shim: Callable[[str], str]
) -> None:
    """A bucket of gradients may lie at another place at one rank; parameters and state stay."""
    library = compile_shim(DATING_SHIM)
    program = (
        DATED
        + """
class Weight(Gradient):
    grad = None
weight = Weight(1)
named = Optimizer(weight)
named.state = {weight: {"step": 5, "exp_avg": Gradient(2)}}
for cut in range(10): step(named, 1, 2, 3)
step(named, 1, 2, 3, 4)
step(named, 1, 2, 4)
step(named, 1, 2, 3, 4)
blocks_of = lambda size: {"state": "active_allocated", "address": 3, "requested_size": size}
blocks[:] = [blocks_of(9)]
for hook in o.after: hook(named, (), {})
"""
    )
    printed = run(folder, program, PYFT_JOB="j", LD_PRELOAD=library).splitlines()
    assert printed[:7] == ["0 0 new ."] * 7
    assert printed[7:10] == ["0 0 14 ."] * 3
    assert printed[10:] == ["0 0 14 new .", "0 0 new .", "0 0 new new .", "new ."]


def test_without_shim_nothing_is_registered(folder: Path) -> None:
    program = "import torch.optim.optimizer as o; print(o.before, o.after)"
    assert run(folder, program, PYFT_JOB="j") == "[] []\n"


def test_loader_is_as_before(folder: Path) -> None:
    program = "import torch, sys; print(vars(torch.__loader__).keys() - {'name', 'path'})"
    assert run(folder, program, PYFT_JOB="j") == "set()\n"


def test_users_sitecustomize_runs_under_its_name(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("print(__name__, __file__)")
    program = "import sitecustomize; print(sitecustomize.__file__)"
    path = folder / "sitecustomize.py"
    assert run(folder, program, PYFT_JOB="j") == f"sitecustomize {path}\n{path}\n"


def test_torch_is_not_imported(folder: Path) -> None:
    assert run(folder, "import sys; print('torch' in sys.modules)", PYFT_JOB="j") == "False\n"


def test_missing_torch_is_an_ordinary_error(tmp_path: Path) -> None:
    program = "try: import torch.nope\nexcept ModuleNotFoundError as e: print(e.name)"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("class backends:\n class cudnn: pass\n")
    assert run(tmp_path, program, PYFT_JOB="j", PYFT_GPUS="soft:1") == "torch.nope\n"
