"""The names of the machines that gapless ships, for helps and completion: known without reading one of them."""

from __future__ import annotations

__all__ = ["topology_names"]


def topology_names() -> list[str]:
    """The machines that gapless ships, by name."""
    from importlib.resources import files

    return sorted(entry.name[:-5] for entry in files("gapless.topologies").iterdir() if entry.name.endswith(".json"))
