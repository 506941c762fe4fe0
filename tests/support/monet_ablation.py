"""What each part of MONeT's search is worth, off and alone, and each method beside it: over the golden set's questions
and ten more.

`python tests/support/monet_ablation.py [-o rows.json] [rows.json ...]`, in a checkout, solves them with little work and
prints the tables of docs/monet.md. `--share K/N`: every N-th question from the K-th on; rows of files that are named
are added. Counted work says what is found, so that the figures are the same on any machine.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from golden import FAR_S, golden_questions, name_of
from questions import write_inputs

import gapless
from gapless.encodings.monet.parameters import PARTS
from gapless.encodings.monet.question import METHODS
from gapless.errors import InputError

BEST = 1e-6
"""Steps that differ by less than this share are as good."""
LITTLE_WORK: dict[str, dict[str, Any]] = {
    "cooling": {"steps_per_node": 8, "patience": 2},
    "bounding": {
        "start_steps": 20, "steps": 20, "more_steps": 40, "exact_steps": 20, "proof_steps": 2000,
        "small_cells": 4000,
    },
    "nesting": {"most_places": 24},
    "least_budget_steps": 200,
}  # fmt: skip
"""Parameters: every part has its turn, none takes long. The integer program has its on VGG-16 and what is smaller."""
MORE = {
    "chain.json": ("0.6x", "0.65x", "0.75x"),
    "unet --batch 4": ("0.25x", "0.32x", "0.4x", "0.8x"),
    "unet_3d --batch 1": ("0.5x",),
    "vgg16 --batch 32": ("0.7x", "0.8x"),
}
"""Budgets of graphs."""
NOT_BESIDE = ("auto", "gist")
"""All of the search; and what isn't exact, so that its plans answer another question."""
Row = dict[str, tuple[str, float | None, float | None]]
"""Status, cost and bound by what was tried."""


def ablation_questions() -> dict[str, dict[str, Any]]:
    """The golden set's, then other budgets; any gap is to be closed."""
    more = []
    for named, budgets in MORE.items():
        graph, _, batch = named.partition(" --batch ")
        about = {"graph": graph, "batch": batch, "device": "p100"} if batch else {"graph": graph}
        more += [{**about, "budget": budget} for budget in budgets]
    asked = [{**question, "gap": "0", "threads": "1"} for question in (*golden_questions()["monet"], *more)]
    return {name_of("monet", question): question for question in asked}


def variants() -> dict[str, dict[str, Any]]:
    """All of the search, each part left out, each alone; and what it is compared with."""
    parts = {
        f"{kind} {name}": {"parameters": {**LITTLE_WORK, "methods": {kind: [name]}}}
        for kind in ("without", "only")
        for name in PARTS
    }
    others = {name: {"method": name, "parameters": LITTLE_WORK} for name in METHODS if name not in NOT_BESIDE}
    return {"auto": {"parameters": LITTLE_WORK}, **parts, **others}


def answer_of(question: dict[str, Any], how: dict[str, Any]) -> tuple[str, float | None, float | None]:
    """What a variant comes to; "unsuited" where a method refuses the graph."""
    try:
        solution = gapless.monet.solve(**question, **how, time_limit=FAR_S).solution
    except InputError:
        return "unsuited", None, None
    return solution.status.value, solution.objective, solution.bound


def table(rows: dict[str, Row], names: dict[str, str]) -> str:
    """For each variant: its plans, where none is cheaper, how much dearer than the search's, and the proven gaps."""
    lines = [
        "| tried | plans | proofs of none | best | dearer than all | at most | gap |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, title in names.items():
        plans = {question: row for question, row in rows.items() if row[name][1] is not None}
        ratios = [row[name][1] / row["auto"][1] for row in plans.values() if row["auto"][1] is not None]
        least = [min(found[1] for found in row.values() if found[1] is not None) for row in plans.values()]
        is_best = sum(row[name][1] <= cost * (1 + BEST) for row, cost in zip(plans.values(), least, strict=True))
        gaps = [1 - (row[name][2] or 0.0) / row[name][1] for row in plans.values()]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) - 1 if ratios else math.nan
        proofs = sum(row[name][0] == "infeasible" for row in rows.values())
        most = max(ratios, default=math.nan) - 1
        gap = sum(gaps) / len(gaps) if gaps else math.nan
        lines.append(f"| {title} | {len(plans)} | {proofs} | {is_best} | {mean:.2%} | {most:.1%} | {gap:.2%} |")
    return "\n".join(lines).replace("nan%", "-")


def main() -> None:
    """Solve, and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("known", nargs="*", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--share", default="1/1")
    asked = parser.parse_args()
    rows: dict[str, Row] = {}
    for path in asked.known:
        for name, row in json.loads(path.read_text(encoding="utf-8")).items():
            rows.setdefault(name, {}).update(row)
    first, every = map(int, asked.share.split("/"))
    write_inputs(Path())
    for variant, how in variants().items():
        for name, question in list(ablation_questions().items())[first - 1 :: every]:
            if variant not in rows.setdefault(name, {}):
                rows[name][variant] = answer_of(question, how)
                print(name, variant, rows[name][variant], file=sys.stderr, flush=True)
                if asked.output:
                    asked.output.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")
    parts = {f"{kind} {name}": f"{kind} `{name}`" for kind in ("without", "only") for name in PARTS}
    print(f"{len(rows)} questions\n\n{table(rows, {'auto': 'all', **parts})}\n")
    print(table(rows, {name: f"`{name}`" for name in METHODS}))


if __name__ == "__main__":
    main()
