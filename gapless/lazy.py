"""What is imported on first use: a package, a system or a question is light until it is asked.

References stay plain Python, which type checkers follow: `from package import module` gives a stand-in for the module
where the package has `names_of`, and `lazy(lambda: module.function)` is that function, looked up when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

__all__ = ["lazy", "names_of"]

P = ParamSpec("P")
R = TypeVar("R")


def lazy(reference: Callable[[], Callable[P, R]]) -> Callable[P, R]:
    """The function that `reference` gives, which is asked for it with each call."""
    return lambda *values, **by_name: reference()(*values, **by_name)


def names_of(package: str, public: Mapping[str, tuple[str, ...]] | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of a package: its modules on first use, and its public names, listed in `public` by module.

    None of these may be the name of a module of the package: once that is imported, it is what the name stands for.
    """
    module_of = {name: module for module, names in (public or {}).items() for name in names}

    def load(name: str) -> Any:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        if not name.startswith("__") and find_spec(f"{package}.{name}") is not None:
            return _StandIn(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load


class _StandIn(ModuleType):
    """A module that is imported when something of it is asked for."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__name__", "__class__"):
            return super().__getattribute__(name)
        return getattr(import_module(self.__name__), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(import_module(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(import_module(self.__name__), name)
