"""The tool that changes C++ sources: what it changes, what it leaves alone, and what a test says."""

from __future__ import annotations

import sys
from pathlib import Path

for part in ("check", "gen"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / part))
import mutants_page  # noqa: E402
import mutation_results  # noqa: E402
import source_mutants  # noqa: E402
from source_mutations import mutants, sample  # noqa: E402

SOURCE = """#include "a < b.h"
// if (a == b) return;
int limit() { return 3; }
constexpr std::chrono::milliseconds kLook(2);
constexpr int kAnswerMs = 3000;

bool below(int a, Box&& box) {
  if (!a) return false;
  box.fill(a, 'x', "a == b");
  const bool found = a < limit();
  int ends[5];
  std::atomic_thread_fence(std::memory_order_acquire);
  if (a > 2 && found) throw Error("no == here");
  return found;
}
"""
EXPECTED = {
    "int limit() { return 3; } [3 -> 4]",
    "if (!a) return false; [false -> true]",
    "if (!a) return false; [if (!a) -> if (!(!a))]",
    "if (!a) return false; [return false -> nothing]",
    "const bool found = a < limit(); [< -> <=]",
    'if (a > 2 && found) throw Error("no == here"); [> -> >=]',
    'if (a > 2 && found) throw Error("no == here"); [2 -> 3]',
    'if (a > 2 && found) throw Error("no == here"); [&& -> ||]',
    'if (a > 2 && found) throw Error("no == here"); [if (a > 2 && found) -> if (!(a > 2 && found))]',
}


def test_changes(tmp_path: Path) -> None:
    path = tmp_path / "sample.cc"
    path.write_text(SOURCE)
    found = mutants(path)
    texts = {mutant.text for mutant in found}
    assert texts >= EXPECTED, EXPECTED - texts
    assert not [text for text in texts if "#include" in text or "// if" in text], "left alone"
    assert not [text for text in texts if "constexpr" in text or "[5]" in text], "no behaviour"
    assert not [text for text in texts if "fence" in text], "no test sees it"
    assert all(mutant.source != SOURCE for mutant in found)
    assert all('"no == here"' in mutant.source or "nothing" in mutant.text for mutant in found)
    assert all("Box&& box" in mutant.source for mutant in found)
    assert [mutant.line for mutant in found] == sorted(mutant.line for mutant in found)
    assert len(texts) == len(found), "each has a name of its own"


def test_a_seed_draws_the_same_sample_again(tmp_path: Path) -> None:
    path = tmp_path / "sample.cc"
    path.write_text(SOURCE)
    found = mutants(path)
    assert sample(found, 4, 1) == sample(found, 4, 1) != sample(found, 4, 2)
    assert sample(found, 99, 1) == found


def test_each_file_of_the_table_is_there_and_has_mutants() -> None:
    for source in source_mutants.table():
        found = {mutant.text for mutant in mutants(source_mutants.ROOT / source.file)}
        assert len(found) >= 10
        assert source.survivors.keys() <= found, source.survivors.keys() - found


def test_the_page_is_made_from_its_data() -> None:
    text = mutants_page.PAGE.read_text()
    assert text == mutants_page.page(text)
    assert mutation_results.known().keys() <= mutants_page.rows().keys()
