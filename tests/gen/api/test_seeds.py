"""The fuzzer of dispatch begins with a seed of every command, also of one that nobody has heard of."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GEN = ROOT / "tools" / "gen"
GENERATOR = GEN / "gen_api.py"
sys.path.insert(0, str(GEN))
import api_records  # noqa: E402
import emit_seeds  # noqa: E402

HINTS = (ROOT / "tests" / "wire" / "seed_hints.h").read_text()
NEW = """
[pyftNew]
id = 64
route = "handwritten"
replay = "mutate"
support = "full"
payload = true
wire = ["new_event handle", "stream stream", "device_ptr to", "u32 count", "u32 reserved"]

[cufftFoo]
id = 65
route = "async"
replay = "configure"
support = "full"
args = { plan = "object:cufft_plan", n = "in:rank", work = "out" }
"""
PROTOTYPE = (
    "cufftResult cufftFoo(cufftHandle plan, int rank, long long *n, double scale, size_t *work)\n"
)


def outputs(api: Path, folder: Path) -> tuple[str, str]:
    """Return the generated seeds.cc and fakes.cc."""
    command = [sys.executable, str(GENERATOR), "--api", str(api), "--seeds", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (folder / "seeds.cc").read_text(), (folder / "fakes.cc").read_text()


def function(text: str, name: str) -> str:
    """Return the body of one generated function."""
    found = re.search(rf"^\w+ {name}\(.*?\) {{\n(.*?)^}}$", text, re.DOTALL | re.MULTILINE)
    assert found, f"{name} is not there"
    return found[1]


def test_every_command_has_one_seed(tmp_path: Path) -> None:
    seeds, fakes = outputs(ROOT / "proxy" / "api", tmp_path)
    commands = api_records.load(ROOT / "proxy" / "api").commands
    names = [record.name for record in commands]
    assert len(names) > 600
    assert re.findall(r"^Seed seed_(\w+)\(\)", seeds, re.MULTILINE) == names
    assert re.findall(r"^      seed_(\w+)\(\),$", seeds, re.MULTILINE) == names
    generated = [record.name for record in commands if record.generated]
    assert re.findall(r"^  table\.(\w+) = ", fakes, re.MULTILINE) == generated


def test_every_handle_and_object_of_a_seed_is_there() -> None:
    for record in api_records.load(ROOT / "proxy" / "api").commands:
        if not record.generated:
            continue
        values = dict(emit_seeds.assignments(record))
        for param in record.params:
            head, _, kind = param.kind.partition(":")
            if head in ("object", "nullable", "end"):
                assert values[param.name] == f"seed_object(ObjectType::{kind})"
            if head == "new":
                assert values[param.name] == f"new_seed_object(ObjectType::{kind})"
            if head == "device_ptr":
                assert values[param.name] == "kSeedAddress"
            if head == "cublas":
                assert values[param.name] == "seed_blas()"


def test_hints_name_commands_that_are_hand_written() -> None:
    by_name = {r.name: r for r in api_records.load(ROOT / "proxy" / "api").commands}
    hinted = re.findall(r"void seed_hint\(cmd::(\w+)&", HINTS)
    assert hinted
    assert [name for name in hinted if by_name[name].generated] == []


def test_new_records_have_seeds_without_a_hint(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(NEW)
    (tmp_path / "prototypes").mkdir()
    (tmp_path / "prototypes" / "cufft.txt").write_text(PROTOTYPE)
    seeds, fakes = outputs(tmp_path, tmp_path / "out")
    assert "pyftNew" not in HINTS
    written = function(seeds, "seed_pyftNew")
    assert "c.handle = new_seed_handle(HandleKind::kEvent);" in written
    assert "c.stream = seed_handle(HandleKind::kStream);" in written
    assert "c.to = kSeedAddress;" in written
    assert "c.count = 1;" in written
    assert "reserved" not in written
    assert "payload.assign(kSeedPayload, 1);" in written
    generated = function(seeds, "seed_cufftFoo")
    assert "c.plan = seed_object(ObjectType::cufft_plan);" in generated
    assert "c.rank = 1;" in generated
    assert "c.n = 8;" in generated
    assert "tail.assign(8, 1);" in generated
    assert "c.scale = kSeedFloat;" in generated
    library = function(fakes, "fake_cufftFoo")
    assert "look_at(n, pyft::server::array_bytes(rank, 8));" in library
    assert "write_to(work, 8);" in library
