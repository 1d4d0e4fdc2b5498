"""A rank with an optimizer starts in 2.3 s of processor time instead of 4.1 s.

Ranks were three quarters of what tests of jobs compute, and most of that was imports.

Found through PYTHONPATH by every Python that these tests start, with pyft and without.

* No garbage is collected while torch is imported: there is none yet.
* Optimizers ask torch._dynamo to leave them alone, which imports the whole compiler, sympy and
  Triton. A module that leaves all alone stands in its place until a program asks it for more.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

DYNAMO = "torch._dynamo"


def _leave_alone(function: Any = None, *_: Any, **__: Any) -> Any:
    return _leave_alone if function is None else function


class _Part(SimpleNamespace):
    """A module of torch._dynamo, of which DDP and process groups ask one thing each."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{DYNAMO}.{self.name}"), name)


class _Deferred(ModuleType):
    """torch._dynamo as far as programs need it that compile nothing."""

    __path__: Sequence[str] = []
    disable = staticmethod(_leave_alone)
    graph_break = staticmethod(lambda *_, **__: None)
    is_compiling = staticmethod(lambda: False)
    utils = _Part(name="utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
    trace_rules = _Part(name="trace_rules", clear_lru_cache=lambda: None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_whole(), name)


def _whole() -> ModuleType:
    """Put the real torch._dynamo into its place."""
    if isinstance(sys.modules[DYNAMO], _Deferred):
        del sys.modules[DYNAMO]
    return importlib.import_module(DYNAMO)


class _There:
    """A loader of a module that exists."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        pass


def _spec(name: str, module: ModuleType) -> ModuleSpec:
    return ModuleSpec(name, _There(module))  # type: ignore[arg-type]


class _Finder:
    """Is asked for each module, before all others."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.startswith(DYNAMO + ".") and isinstance(sys.modules[DYNAMO], _Deferred):
            _whole()
            return _spec(name, importlib.import_module(name))
        if name not in ("torch", DYNAMO) or name in self._seen:
            return None
        self._seen.add(name)
        if name == DYNAMO:
            return _spec(name, _Deferred(name))
        others = (one for one in sys.meta_path if one is not self)
        spec = next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
        if spec and spec.loader:
            _without_garbage(spec.loader)
        return spec


def _without_garbage(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        gc.disable()
        try:
            execute(module)
        finally:
            gc.enable()

    loader.exec_module = exec_module


sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
