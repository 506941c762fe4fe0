"""The golden set: questions of every system whose plans a change of the house must not change.

`python tests/support/golden.py [SYSTEM ...]`, in a checkout, solves them and writes `tests/golden.json` anew: for each
a hash of the plan without how it was made (`run`) and without what it was decided by (`decision`), its makespan and its
bound. A change that is meant to change plans says so with the new file.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from questions import QUESTIONS, Question, content, write_inputs

import gapless
from gapless.system import find_system

RECORD = Path(__file__).parents[1] / "golden.json"
FAR_S = 1e5
"""A limit that no question comes near: how busy the machine is changes nothing."""
NOT_HELD = ("decision",)
"""Sections that may come and go."""
WRITER = "0.1.0.dev0"
"""The version of gapless that stands in the plans which are hashed, so that a release changes none."""

NETWORKS: tuple[Question, ...] = (
    {"topology": "ring:5"},
    {"topology": "line:4"},
    {"topology": "hub-and-spoke:5"},
    {"topology": "mesh:2x3"},
    {"topology": "torus:3x3,alpha_us=1,beta_us_per_mb=20/40"},
    {"topology": "hypercube:3"},
    {"topology": "ndv2"},
    {"topology": "dgx1"},
    {"topology": "mi300x"},
    {"topology": "dgx-a100"},
    {"topology": "dgx-h100"},
)
COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast")
SIZES = ("1KB", "1MB", "64MB")
SKETCHED: tuple[Question, ...] = (
    {"topology": "ndv2", "nodes": "2", "sketch": "ndv2-sk-1", "collective": "allgather", "size": "1MB"},
    {"topology": "ndv2", "nodes": "2", "sketch": "ndv2-sk-2", "collective": "alltoall", "size": "1MB"},
    {"topology": "dgx2", "nodes": "2", "sketch": "dgx2-sk-2", "collective": "allgather", "size": "1KB"},
    {"topology": "dgx-a100", "nodes": "2", "sketch": "dgx-a100-sk-1", "collective": "allgather", "size": "1MB"},
    {"topology": "dgx-h100", "nodes": "2", "sketch": "dgx-h100-sk-1", "collective": "allgather", "size": "1MB"},
    {"topology": "mi300x", "nodes": "2", "sketch": "mi300x-sk-1", "collective": "allgather", "size": "1MB"},
    {"topology": "ndv2", "nodes": "2", "sketch": "ndv2-sk-1", "collective": "reducescatter", "size": "1MB"},
    {"topology": "mi300x", "nodes": "2", "sketch": "mi300x-sk-2", "collective": "allgather", "size": "64KB"},
    {"topology": "dgx-a100", "nodes": "2", "sketch": "dgx-a100-sk-2", "collective": "allgather", "size": "1KB"},
)
LITTLE_WORK = {
    "chunking": {"rows": 8_000, "most_numbers": 6},
    "aggregation": {"tries": 60, "messages": 10_000, "baseline_transfers": 20_000},
    "greedy": {"rows": 20_000, "rows_of_small": 10_000, "rounding_steps": 50},
    "matching": {"sends": 20_000},
    "trees": {"rows": 6_000, "looks": 100_000},
    "milp": {"routing_work": 200_000, "another_routing_work": 50_000, "perturbed_rows": 10_000, "exact_steps": 10},
}
"""Parameters of TACCL's searches: every method has its turn, none takes long."""


def golden_questions() -> dict[str, list[dict[str, Any]]]:
    """The questions by system: 64 of TACCL on 11 topologies and under sketches, ten of each other system."""
    over_networks = [
        {**network, "collective": collective, "size": SIZES[(row + column) % len(SIZES)]}
        for row, network in enumerate(NETWORKS)
        for column, collective in enumerate(COLLECTIVES)
    ]
    taccl = [{**question, "parameters": LITTLE_WORK} for question in (*over_networks, *SKETCHED)]
    return {"taccl": taccl, **{name: list(asked) for name, asked in QUESTIONS.items() if name != "taccl"}}


def golden_row(system: str, question: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What is held of a question's answer, solved in a folder that has the files which questions name."""
    result = getattr(gapless, system).solve(**{"threads": "1", **question}, time_limit=FAR_S)
    row = {"status": result.status.value, "bound": result.solution.bound}
    if result.schedule is None:
        return row
    path = folder / f"plan{find_system(system).ending}"
    result.save(path)
    digest = hashlib.sha256()
    for name, section in sorted(content(path).items()):
        if name not in NOT_HELD:
            held = section if isinstance(section, bytes) else section.encode()
            digest.update(name.encode() + held.replace(f'"{gapless.__version__}"'.encode(), f'"{WRITER}"'.encode()))
    return {**row, "makespan_s": result.report.makespan_s, "valid": result.valid, "plan": digest.hexdigest()[:16]}


def golden_rows(systems: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What is held of all questions of some systems, by question."""
    rows, here = {}, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write_inputs(Path(folder))
            for system in systems:
                for question in golden_questions()[system]:
                    rows[name_of(system, question)] = golden_row(system, question, Path(folder))
                    print(name_of(system, question), rows[name_of(system, question)], file=sys.stderr, flush=True)
        finally:
            os.chdir(here)
    return rows


def name_of(system: str, question: dict[str, Any]) -> str:
    """A question in a line."""
    return " ".join([system, *(f"{name}={value}" for name, value in question.items() if name != "parameters")])


if __name__ == "__main__":
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    known |= golden_rows(sys.argv[1:] or golden_questions())
    RECORD.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n", encoding="utf-8")
