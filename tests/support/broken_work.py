"""Work for a process of its own, which can import what is here by name."""

from __future__ import annotations

import threading


def breaks_at_one(stop: threading.Event, place: int) -> int:
    """Ten times the place; `KeyError` at place 1."""
    if place == 1:
        raise KeyError("no such thing")
    return 10 * place
