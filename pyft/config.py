"""The values of pyft's settings, which settings.toml lists, and what is said about bad ones."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, MutableMapping

from pyft import log
from pyft.errors import ConfigError
from pyft.settings import BY_NAME, SETTINGS, Setting

# What variables were called before. The old names hold for this version still.
RENAMED = {
    "PYFT_SHARE_CAPTURES": "PYFT_SHARE_SNAPSHOTS",
    "PYFT_LATE_COPIES": "PYFT_BACKGROUND_COPIES",
}
WRONG_REPLAYS = "PYFT_IGNORE_OBSERVED"


def get(name: str, environment: Mapping[str, str] | None = None) -> int | float | str:
    """Return the value of a setting, converted; raise ConfigError when it cannot be."""
    setting = BY_NAME[name]
    text = (os.environ if environment is None else environment).get(name, "")
    if text == "":
        return setting.default
    if setting.number or not isinstance(setting.default, str):
        return _number(setting, text)
    if setting.choices and text not in setting.choices:
        raise ConfigError(f"{name} is [{text}], not {' or '.join(setting.choices)}")
    return text


def _number(setting: Setting, text: str) -> int | float:
    kind = int if setting.number else type(setting.default)
    try:
        value = kind(text)
    except ValueError:
        raise ConfigError(f"{setting.name} is [{text}], which is not a number") from None
    if not math.isfinite(value):
        raise ConfigError(f"{setting.name} is [{text}], which is not a finite number")
    if value < 0 or (value == 0 and setting.least):
        raise ConfigError(f"{setting.name} is [{text}], which is not positive")
    return value


def get_int(name: str, environment: Mapping[str, str] | None = None) -> int:
    """Return an integer setting."""
    return int(get(name, environment))


def get_str(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return a text setting."""
    return str(get(name, environment))


def check(environment: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError at the first variable that has no value it can have."""
    for setting in SETTINGS:
        get(setting.name, environment)
    log.parse(get_str("PYFT_LOG", environment))


def take_old_names(environment: MutableMapping[str, str] | None = None) -> list[str]:
    """Give the values of variables with old names to the new ones; return a sentence for each."""
    values = os.environ if environment is None else environment
    found = []
    for old, new in RENAMED.items():
        if old in values:
            values.setdefault(new, values[old])
            del values[old]
            found.append(
                f"the variable [{old}] is called [{new}] now: this version still takes the old name"
            )
    return found


def warnings(environment: Mapping[str, str] | None = None) -> list[str]:
    """One sentence per PYFT_* variable that nothing reads, or that makes results wrong."""
    values = os.environ if environment is None else environment
    found = []
    if values.get(WRONG_REPLAYS) == "1":
        found.append(f"[{WRONG_REPLAYS}] is set, which is for tests: replays may come out wrong")
    for name in sorted(values):
        if not name.startswith("PYFT_") or name in BY_NAME:
            continue
        near = difflib.get_close_matches(name, BY_NAME, n=1)
        hint = f"; did you mean [{near[0]}]?" if near else ""
        found.append(f"the variable [{name}] is unknown and has no effect{hint}")
    return found
