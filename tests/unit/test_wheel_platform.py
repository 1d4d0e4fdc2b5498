"""`make wheel` refuses a wheel whose libraries need more than its name promises."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "tools" / "build" / "wheel.py"
spec = util.spec_from_file_location("build_wheel", FILE)
assert spec
assert spec.loader
wheel = util.module_from_spec(spec)
spec.loader.exec_module(wheel)

BLAS = {"libs_to_eliminate": [wheel.BLAS]}
GOOD = {"sym_tag": "manylinux_2_34_x86_64", "unsupported_isa": False}


@pytest.mark.parametrize(
    ("shown", "needs"),
    [
        (GOOD, []),
        (GOOD | {"sym_tag": "manylinux_2_17_x86_64"}, []),
        (GOOD | {"sym_tag": "manylinux_2_35_x86_64"}, ["manylinux_2_35_x86_64"]),
        (GOOD | {"sym_tag": "linux_x86_64"}, ["linux_x86_64"]),
        (GOOD | {"unsupported_isa": True}, ["a newer processor"]),
        (GOOD | {"more": {"libs_to_eliminate": [wheel.BLAS, "libzstd.so.1"]}}, ["libzstd.so.1"]),
        (GOOD | {"more": BLAS | {"blacklisted_symbols": {"libz.so.1": ["inflate"]}}}, ["inflate"]),
    ],
)
def test_libraries_that_need_more_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: dict[str, Any], needs: list[str]
) -> None:
    """The answers are those that auditwheel 6.8 gives; its text always has the file's name."""
    file = tmp_path / f"pyft-0.1.0-py3-none-{wheel.PLATFORM}.whl"
    with wheel.zipfile.ZipFile(file, "w"):
        pass
    upgrades = {wheel.PLATFORM: shown.get("more", BLAS), "manylinux_2_5_x86_64": {}}
    said = shown | {"wheel": file.name, "overall_tag": "linux_x86_64", "policy_upgrades": upgrades}
    monkeypatch.setattr(wheel, "run", lambda *_: wheel.json.dumps(said))
    if not needs:
        wheel.check(file)
        return
    with pytest.raises(SystemExit) as refused:
        wheel.check(file)
    assert str(needs) in str(refused.value)
