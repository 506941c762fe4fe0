"""What each method of TACCL is worth: every one alone, over the golden set's questions and 60 more.

`python tests/support/taccl_ablation.py [--share K/N] [-o rows.json] [rows.json ...]`, in a checkout, solves them with
little work, each method by itself (`methods.only`), and prints the table of docs/taccl.md. `--share`: every N-th
question from the K-th on; rows of files that are named are added. Counted work says what is found, so that the figures
are the same on any machine.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from golden import COLLECTIVES, FAR_S, LITTLE_WORK, SIZES, golden_questions, name_of

import gapless
from gapless.encodings.taccl.methods import NAMES

BEST = 1e-3
"""Plans that differ by less than this share are as good."""
LARGER: tuple[dict[str, str], ...] = (
    {"topology": "ndv2", "nodes": "2"},
    {"topology": "dgx1", "nodes": "2"},
    {"topology": "dgx-a100", "nodes": "2"},
    {"topology": "mi300x", "nodes": "2"},
    {"topology": "mi250"},
    {"topology": "dgx2"},
    {"topology": "torus:4x4"},
    {"topology": "mesh:4x4"},
    {"topology": "hypercube:4"},
    {"topology": "fat-tree:k=4"},
    {"topology": "mesh:3x4,alpha_us=1,beta_us_per_mb=20/60"},
    {"topology": "ring:12"},
)
"""Networks of 12 to 16 ranks, none under a sketch: of two nodes, of unlike links, of several dimensions."""


def ablation_questions() -> list[dict[str, Any]]:
    """The golden set's, then five collectives on each larger network."""
    more = [
        {**network, "collective": collective, "size": SIZES[(row + column + 1) % len(SIZES)]}
        for row, network in enumerate(LARGER)
        for column, collective in enumerate(COLLECTIVES)
    ]
    return [*golden_questions()["taccl"], *({**question, "parameters": LITTLE_WORK} for question in more)]


def ends_of(question: dict[str, Any]) -> dict[str, float]:
    """When the plan of each method alone ends; of the first plan, where that is the faster or the method has none."""
    ends = {}
    for name in NAMES:
        parameters = {**question["parameters"], "methods": {"only": [name]}}
        result = gapless.taccl.solve(**{"threads": "1", **question, "parameters": parameters}, time_limit=FAR_S)
        ends[name] = result.report.makespan_s
    return {name: min(end_s, ends["first"]) for name, end_s in ends.items()}


def table(rows: dict[str, dict[str, float]]) -> str:
    """For each method: where it is the best, the only best one, and how much slower the best without it is."""
    lines = ["| method | best | only best | slower without it | at most |", "|---|---:|---:|---:|---:|"]
    for name in NAMES[1:]:
        losses = []
        is_best = 0
        for ends in rows.values():
            others_s = min(end_s for other, end_s in ends.items() if other != name)
            losses.append(max(others_s / ends[name], 1.0))
            is_best += ends[name] <= min(others_s * (1 + BEST), ends["first"] * (1 - BEST))
        only = [loss for loss in losses if loss > 1 + BEST]
        mean = math.exp(sum(map(math.log, losses)) / len(losses)) - 1
        lines.append(f"| `{name}` | {is_best} | {len(only)} | {mean:.2%} | {max(losses) - 1:.0%} |")
    return "\n".join(lines)


def main() -> None:
    """Solve, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", default="1/1")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("rows", nargs="*", type=Path)
    asked = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    for path in asked.rows:
        rows |= json.loads(path.read_text(encoding="utf-8"))
    first, count = map(int, asked.share.split("/"))
    for question in [] if asked.rows else ablation_questions()[first - 1 :: count]:
        rows[name_of("taccl", question)] = ends_of(question)
        print(name_of("taccl", question), rows[name_of("taccl", question)], file=sys.stderr, flush=True)
        if asked.output is not None:
            asked.output.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")
    print(f"{len(rows)} questions\n\n{table(rows)}")


if __name__ == "__main__":
    main()
