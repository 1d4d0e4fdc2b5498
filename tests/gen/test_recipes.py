"""Recipes of docs/recipes are followed to the letter in a copy: its tables, generators, tests.

What a recipe says in code blocks is put where it says, and its commands are run as they stand. Its
C++ is held against the headers by the compiler, and nothing is linked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import wire_messages  # noqa: E402
from vendor_exports import package_roots  # noqa: E402

COMPILER = shutil.which("c++") or shutil.which("g++")
INCLUDES = ("proxy", "proxy/include", "flexccl/include", "profiling/include")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, section: str, language: str) -> list[str]:
    """Return the code blocks of a section, by the beginning of its heading."""
    text = (ROOT / "docs/recipes" / page).read_text()
    found = re.search(rf"^## {re.escape(section)}.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section [{section}]"
    return [code for kind, code in BLOCK.findall(found[0]) if kind == language]


class Copy:
    """A part of the tree, with the environment of the tests as its `.venv`."""

    def __init__(self, root: Path, *parts: str) -> None:
        self.root = root
        for part in parts:
            source, to = ROOT / part, root / part
            to.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__", "*.so*"))
            else:
                shutil.copy(source, to)
        (root / ".venv").symlink_to(sys.prefix)
        self.run("git init -q . && git add -A -- . ':!.venv'")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert text.count(old) == 1, f"[{old}] stands once in {name}"
        (self.root / name).write_text(text.replace(old, new))

    def append(self, name: str, text: str) -> None:
        with (self.root / name).open("a") as file:
            file.write("\n" + text)

    def run(self, commands: str) -> str:
        """Run commands as a shell does that stops at the first one which fails."""
        environment = {**os.environ, "GIT_PAGER": "cat", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            ["bash", "-ec", commands],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def compile(self, source: str, *more: Path) -> None:
        """Have the compiler check a file; what the copy has comes before what the tree has."""
        assert COMPILER
        folders = [
            *(self.root / include for include in INCLUDES),
            *more,
            *(ROOT / include for include in INCLUDES),
            ROOT / "tests",
        ]
        vendor = [folder for root in package_roots() for folder in root.glob("*/include")]
        command = [COMPILER, "-std=c++20", "-fsyntax-only", "-Werror", "-Wno-unused-parameter"]
        command += [f"-I{folder}" for folder in folders]
        command += [word for folder in vendor for word in ("-isystem", str(folder))]
        done = subprocess.run([*command, source], cwd=self.root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def message(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Return a copy in which the steps 1, 2, 4 and 5 of add-message have been done."""
    copy = Copy(
        tmp_path_factory.mktemp("message"),
        *("proxy/api/wire", "pyft", "tools/gen", "docs/messages.md"),
        *("tests/unit/test_wire.py", "proxy/server/recovery/agent_link.h"),
        "tests/wire/messages_test.cc",
    )
    (table,) = blocks("add-message.md", "1.", "toml")
    line = "# ---- agent to server ----"
    copy.edit("proxy/api/wire/messages.toml", line, f"{table}\n{line}")
    (row,) = [code for code in blocks("add-message.md", "4.", "python")]
    beginning = "self._handlers: dict[type[wire.Message], Handler] = {\n"
    copy.edit("pyft/agent/lifecycle/router.py", beginning, beginning + row)
    (row,) = blocks("add-message.md", "5.", "text")
    copy.edit("tests/unit/test_wire.py", "BYTES = [\n", f"BYTES = [\n{row}")
    (commands,) = blocks("add-message.md", "2.", "sh")
    difference = copy.run(commands)
    assert "+class Temperature" in difference
    assert "b/docs/messages.md" in difference
    assert "Temperature" in (copy.root / "docs/messages.md").read_text()
    return copy


def test_the_number_of_a_new_message_is_the_next_one() -> None:
    """The recipe says it, and the bytes that its test expects have it."""
    known = wire_messages.load(ROOT / "proxy/api/wire/messages.toml").messages
    greatest = max(one.number for one in known if one.direction == "server to agent")
    page = (ROOT / "docs/recipes/add-message.md").read_text()
    assert f"here {greatest}. " in page
    assert f"\nnumber = {greatest + 1}\n" in page
    word = (greatest + 1).to_bytes(4, "little").hex()
    assert page.count(word) == 2, f"[{word}] stands in the bytes of both tests"


def test_a_new_message_is_packed_and_taken(message: Copy) -> None:
    """Its own test passes, a row of the router takes it, and a server can be sent one."""
    (test,) = (code for code in blocks("add-message.md", "5.", "sh"))
    first, *rest = test.splitlines()
    assert rest == ["make build", ".venv/bin/meson test -C build/meson messages"]
    assert "passed" in message.run(first)
    (send,) = blocks("add-message.md", "3.", "python")
    said = message.run(
        f"""PYTHONPATH=$PWD .venv/bin/python - 2>&1 <<'END'
from types import SimpleNamespace
from pyft.agent.lifecycle.router import Router
from pyft.wire import messages as wire
router = Router(SimpleNamespace(plan=SimpleNamespace(rollback=None)))
member = SimpleNamespace(who="rank [3]")
router._handlers[wire.Temperature](member, None, wire.Temperature(80))
server = SimpleNamespace(send=lambda message: print("sent", message))
{send}
END"""
    )
    assert "the GPU of rank [3] has [80] degrees" in said
    assert "sent GiveUp()" in said


@pytest.mark.skipif(not COMPILER, reason="needs a C++ compiler")
def test_a_new_message_is_sent_by_a_server(message: Copy, tmp_path: Path) -> None:
    live, test = blocks("add-message.md", "3.", "cpp") + blocks("add-message.md", "5.", "cpp")
    line = "  void live() override { send_message(to_, msg::Live{}); }\n"
    message.edit("proxy/server/recovery/agent_link.h", line, live)
    test_file, line = "tests/wire/messages_test.cc", "}  // namespace\n"
    message.edit(test_file, line, f"{test}\n{line}")
    message.run(".venv/bin/python tools/gen/gen_wire.py --out proxy/api/wire")
    message.compile(test_file)
    (row,) = blocks("add-message.md", "5.", "text")
    digits = re.findall(r'"([0-9a-f ]+) ', row)[0].replace(" ", "")
    assert "5046544d" + digits == "".join(re.findall(r'"([0-9a-f]+)"', test))


CALL = "cudaMemAdvise"


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return a copy with the record of add-api-call, and the folder of what is made from it."""
    if not any(root.glob("*/include/cuda_runtime_api.h") for root in package_roots()):
        pytest.skip("needs CUDA's headers")
    copy = Copy(
        tmp_path_factory.mktemp("call"),
        *("proxy/api", "proxy/client/memory", "tools/gen", "tests/wire/wire_test.cc"),
    )
    prototype, ids = blocks("add-api-call.md", "2.", "sh")
    copy.run(prototype)
    assert CALL in copy.run("git diff proxy/api/prototypes/cudart.txt")
    assert int(copy.run(ids)) > 0
    (record,) = blocks("add-api-call.md", "2.", "toml")
    copy.append("proxy/api/memory.toml", record)
    copy.edit("proxy/api/unsupported.toml", f'"{CALL}", ', "")
    (commands,) = blocks("add-api-call.md", "3.", "sh")
    made = copy.root / "gen"
    assert commands.count("/tmp/gen") == 2
    stubs = copy.run(commands.replace("/tmp/gen", str(made)))
    return SimpleNamespace(copy=copy, made=made, stubs=stubs)


def test_a_new_call_is_no_unimplemented_stub(call: SimpleNamespace) -> None:
    assert "/names.cc:" in call.stubs
    assert "unimplemented_stubs.cc:" not in call.stubs
    (commands,) = blocks("add-api-call.md", "6.", "sh")
    page, *rest = commands.splitlines()
    assert rest[0] == "make build", "tests look at what is installed"
    assert rest[2:] == [".venv/bin/meson test -C build/meson wire"]
    (call.copy.root / "docs").mkdir()
    call.copy.run(page)
    assert CALL in (call.copy.root / "docs/api-coverage.md").read_text()


@pytest.mark.skipif(not COMPILER, reason="needs a C++ compiler")
def test_a_new_call_is_exported_by_the_client(call: SimpleNamespace) -> None:
    (function,) = blocks("add-api-call.md", "4.", "cpp")
    (test,) = blocks("add-api-call.md", "5.", "cpp")
    file, test_file = "proxy/client/memory/memory.cc", "tests/wire/wire_test.cc"
    assert "using namespace pyft; " in (call.copy.root / file).read_text()
    call.copy.append(file, function)
    call.copy.edit(test_file, "\nCHECK_MAIN\n", f"\n{test}\nCHECK_MAIN\n")
    generated = call.made.parent / "generated"
    shutil.copytree(call.made, generated / "api")
    call.copy.run(".venv/bin/python tools/gen/gen_wire.py --out proxy/api/wire")
    call.copy.compile(file, generated)
    call.copy.compile(test_file, generated, ROOT / "tests/wire")


def test_a_recipe_is_followed_to_its_last_command() -> None:
    """Commands that no test here knows are new: they are to be followed too."""
    counts = {
        page: len(BLOCK.findall((ROOT / "docs/recipes" / page).read_text()))
        for page in ("add-message.md", "add-api-call.md")
    }
    assert counts == {"add-message.md": 8, "add-api-call.md": 7}
