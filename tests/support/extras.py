"""Which extras are here, and the mark of a test that needs one: without the extra it is deselected, and counted.

What the extra `test` brings needs no mark: matplotlib, rich, shtab, jsonschema.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

__all__ = ["LIBRARIES", "extra_of", "is_here", "needs_torch", "needs_transformers"]

LIBRARIES = {
    "docs": ("ipykernel", "mkdocs", "mkdocstrings", "nbclient", "nbformat"),
    "choose": ("sklearn",),
    "fast": ("numba",),
    "hf": ("torch", "transformers"),
    "ray": ("ray",),
    "release": ("twine",),
    "slurm": ("submitit",),
    "test-browser": ("playwright",),
    "torch": ("torch",),
    "trainers": ("accelerate", "lightning", "transformers"),
}
"""What tests import of the extras that they can do without."""

needs_torch = pytest.mark.extra("torch")
needs_transformers = pytest.mark.extra("hf")


def is_here(extra: str) -> bool:
    """Whether all that tests import of an extra is installed."""
    return all(find_spec(library) is not None for library in LIBRARIES[extra])


def extra_of(library: str) -> str:
    """The smallest extra that brings a library; empty where none does."""
    found = [extra for extra in LIBRARIES if library in LIBRARIES[extra]]
    return min(found, key=lambda extra: len(LIBRARIES[extra]), default="")
