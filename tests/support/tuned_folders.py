"""Folders as `gapless tune` writes them, without measuring: plans of little work, and the sizes that they serve."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from little import LITTLE

import gapless
from gapless.encodings.taccl import Chunked
from gapless.io.formats.tuned_file import SELECTOR, Selector, Served, WinningPlan, selector_text
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology

__all__ = ["tuned_folder"]

Wanted = tuple[str, tuple[int, ...], int, int]


def tuned_folder(folder: Path, ranks: int, wanted: Iterable[Wanted], backend: str = "gloo") -> Path:
    """`wanted`: (collective, ranks, least bytes, most bytes)."""
    (folder / "plans").mkdir(parents=True)
    plans, ranges = [], []
    for number, (name, members, least, most) in enumerate(wanted):
        problem = Chunked.of(load_topology(f"ring:{len(members)}"), name, 12_000)
        path = folder / f"plans/{number}.json"
        gapless.solve(problem, SolveOptions(gap=0.1), LITTLE).save(str(path))
        plans.append(WinningPlan(f"plans/{number}.json", hashlib.sha256(path.read_bytes()).hexdigest()))
        ranges.append(Served(name, members, least, most, number))
    selector = Selector("2026-11-24T12:00:00+00:00", backend, ranks, tuple(plans), tuple(ranges))
    (folder / SELECTOR).write_text(selector_text(selector), "utf-8")
    return folder
