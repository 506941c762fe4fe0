"""The versions of the libraries that plans depend on."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from gapless import __version__

__all__ = ["distribution_version", "library_versions"]

_LIBRARIES = ("numpy", "networkx", "highspy", "ortools", "pulp")


def library_versions() -> dict[str, str | None]:
    """The versions of gapless and of the libraries that its plans depend on, None where one is not installed."""
    return {"gapless": __version__, **{name: distribution_version(name) for name in _LIBRARIES}}


@cache
def distribution_version(distribution: str) -> str | None:
    """The version that is installed, None if none is."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
