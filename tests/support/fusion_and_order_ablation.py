"""What each method of pipelines and of Cupcake is worth: every one alone, over the golden set's questions and 20 more.

`python tests/support/fusion_and_order_ablation.py pipeline|cupcake`, in a checkout, solves them with little work, each
method by itself (`methods.only`), and prints the table of the system's page. Counted work says what is found, so that
the figures are the same on any machine.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

from golden import FAR_S, golden_questions, name_of

import gapless
from gapless.encodings.cupcake.parameters import NAMES as FUSIONS
from gapless.encodings.pipeline.parameters import NAMES as ORDERS

BEST = 1e-6
"""Plans that differ by less than this share are as good."""
LITTLE_WORK: dict[str, dict[str, Any]] = {
    "pipeline": {"heuristic_ops": 100_000, "exact_steps": 200, "rounds": 20, "ordered_cuts": 8, "refined_cuts": 1},
    "cupcake": {"most_nodes": 200_000, "most_extensions": 8_000_000, "most_grid_cells": 280_000_000},
}
MODELLED = 64
"""Gradients up to which the MILP of Cupcake has its turn."""
NETWORK = {"ranks": "16", "latency": "10us"}


def ablation_questions(system: str) -> list[dict[str, Any]]:
    """The golden set's, by any method, once each; and some twenty more."""
    golden = [{name: value for name, value in question.items() if name != "method"}
              for question in golden_questions()[system]]  # fmt: skip
    more = _pipelines() if system == "pipeline" else _fusions()
    return list({name_of(system, question): question for question in (*golden, *more)}.values())


def _pipelines() -> Iterable[dict[str, Any]]:
    """Equal stages under other limits of memory, hops and placements; and a model."""
    uniform = {"profile": "uniform:f=10,b=12,w=8", "hop": "2", "ranks": "4"}
    for micro_batches, in_flight in (("8", "4"), ("8", "6"), ("8", "8"), ("16", "4"), ("16", "5"), ("16", "7")):
        yield {**uniform, "micro_batches": micro_batches, "in_flight": in_flight}
    for hop in ("0", "6", "15"):
        yield {**uniform, "hop": hop, "micro_batches": "12"}
        yield {**uniform, "hop": hop, "micro_batches": "12", "backward": "whole"}
    for placement in ("v", "looped"):
        for micro_batches in ("4", "8"):
            yield {**uniform, "placement": placement, "micro_batches": micro_batches, "in_flight": "4"}
    yield {"profile": "gpt-2.5b", "ranks": "3", "micro_batches": "8", "bandwidth": "200Gbps"}


def _fusions() -> Iterable[dict[str, Any]]:
    """Models, plain or by a compressor, on fast and slow networks."""
    for profile in ("vgg16", "resnet50", "bert-base", "gpt2"):
        yield {"profile": profile, "modes": "plain"}
        for compressor, bandwidth in (("powersgd", "1Gbps"), ("topk", "10Gbps"), ("fp16", "25Gbps")):
            yield {"profile": profile, "compressor": compressor, "bandwidth": bandwidth, **NETWORK}
        yield {"profile": profile, "modes": "compress", "decode": "before"}


def ends_of(system: str, question: dict[str, Any]) -> dict[str, float]:
    """When the plan of each method alone ends, inf where it doesn't suit the question."""
    ends = {}
    for name in ORDERS if system == "pipeline" else FUSIONS[:-1]:
        parameters = {**LITTLE_WORK[system], "methods": {"only": [name]}}
        result = getattr(gapless, system).problem(**question) if name == "milp" else None
        if result is not None and result.profile.tensor_count > MODELLED:
            ends[name] = math.inf
            continue
        plan = getattr(gapless, system).solve(
            **{"threads": "1", **question, "parameters": parameters}, time_limit=FAR_S
        )
        is_own = plan.solution.solver.partition("+")[0] == name
        ends[name] = plan.report.makespan_s if is_own else math.inf
    return ends


def table(rows: dict[str, dict[str, float]]) -> str:
    """For each method: its plans, where it is the best or the only best, how much slower the best without it is."""
    lines = ["| method | plans | best | only best | slower without it | at most |", "|---|---:|---:|---:|---:|---:|"]
    for name in next(iter(rows.values())):
        losses, is_best = [], 0
        for ends in rows.values():
            others_s = min(end_s for other, end_s in ends.items() if other != name)
            losses.append(max(others_s / ends[name], 1.0))
            is_best += ends[name] <= others_s * (1 + BEST) and not math.isinf(ends[name])
        only = sum(loss > 1 + BEST for loss in losses)
        made = sum(not math.isinf(ends[name]) for ends in rows.values())
        mean = math.exp(sum(map(math.log, losses)) / len(losses)) - 1
        lines.append(f"| `{name}` | {made} | {is_best} | {only} | {mean:.2%} | {max(losses) - 1:.1%} |")
    return "\n".join(lines)


def main() -> None:
    """Solve, and print the table."""
    system = sys.argv[1]
    rows: dict[str, dict[str, float]] = {}
    for question in ablation_questions(system):
        rows[name_of(system, question)] = ends_of(system, question)
        print(name_of(system, question), rows[name_of(system, question)], file=sys.stderr, flush=True)
    print(f"{len(rows)} questions\n\n{table(rows)}")


if __name__ == "__main__":
    main()
