"""Names of a package that are imported on first use, so that importing the package itself costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["names_of"]


def names_of(package: str, public: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose public names lie in its modules; `public` has those of each module.

    None of them may be the name of a module of the package: once that is imported, it is what the name stands for.
    """
    module_of = {name: module for module, names in public.items() for name in names}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return load
