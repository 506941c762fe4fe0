"""Public schedulers' own orders beside quick orders in the memory that they take.

`pytest tests/benchmarks/test_pipeline_programs.py --tables FOLDER` writes the table.
The orders are recorded (`tests/support/schedule_programs.py` runs the programs), and replayed with the costs of the
plan. The memory of a question is what the fullest rank keeps in the program's order, where stashes are held until the
weight gradient, and where the gradient of the input frees half of each. A whole backward among split ones sends its
gradient of inputs early, in favour of the program; a plan may always split backwards.

Ours are made in a small share of the default work, with no neighbourhood and no exact model. No program may be
ahead in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np
import pytest
from result_tables import ResultTables
from schedule_programs import CASES, Case, recorded

from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.order.orders import Timeline, number, plain
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.encodings.pipeline.problem import problem
from gapless.encodings.pipeline.schedules.baselines import whole
from gapless.encodings.pipeline.search.search import Search
from gapless.options import Deadline, SolveOptions
from gapless.solution import PROVEN_GAP

TITLE = "Orders of public programs, and plans in as much memory: makespans over theirs"
SHARE = 0.02
KINDS = {"F": (Kind.FORWARD,), "B": (Kind.BACKWARD,), "W": (Kind.WEIGHT,), "X": (Kind.BACKWARD, Kind.WEIGHT)}
PROGRAMS = tuple(dict.fromkeys(case.program for case in CASES))


def replayed(stages: Stages, order: list[str]) -> tuple[Stages, Timeline]:
    """A program's order as it is played: of whole backwards where it splits none."""
    stages = stages if any("B" in rank.upper() for rank in order) else whole(stages)
    sequences = []
    for rank, letters in enumerate(order):
        here = sorted(np.flatnonzero(stages.rank == rank).tolist(), key=lambda stage: stage % stages.depth)
        done: dict[tuple[Kind, int], int] = {}
        ops = []
        for letter in letters:
            stage = here[letter.islower()]
            for kind in KINDS[letter.upper()][: None if stages.splits else 1]:
                done[kind, stage] = done.get((kind, stage), -1) + 1
                ops.append(number(stages, kind, stage, done[kind, stage]))
        assert sorted(ops) == sorted(set(ops))
        sequences.append(ops)
    timeline = timed(stages, plain(stages, sequences))
    assert timeline is not None
    assert sum(map(len, sequences)) == (3 if stages.splits else 2) * stages.count * stages.micro_batches
    return stages, timeline


def compared(case: Case, order: list[str], kept: float = 1.0) -> tuple[float, float, bool]:
    """Ours over theirs; the bound of the placement over theirs; whether ours is proven.

    `kept`: the share of a stash that is held from the gradient of the input to that of the weights.
    """
    f, b, w, hop = case.costs
    profile = f"uniform:f={f:g},b={b:g},w={w:g},kept={kept:g}"
    free = problem(profile=profile, ranks=case.ranks, micro_batches=case.micro_batches,
                   placement=case.placement, hop=hop, message_memory="free")  # fmt: skip
    stages, theirs = replayed(stages_of(free, even_cut(free.profile.layer_count, free.stage_count)), order)
    states = np.bincount(stages.rank, weights=stages.state_bytes, minlength=stages.ranks)
    memory = int((peak_bytes(stages, theirs.program) + states).max())
    question = problem(profile=free.profile, ranks=case.ranks, micro_batches=case.micro_batches,
                       placement=case.placement, hop=hop, message_memory="free", memory=memory)  # fmt: skip
    options = SolveOptions(threads=1)
    search = Search(question, options, Deadline(options), DEFAULTS.with_share(SHARE), lambda found: None)
    search.run(is_quick=True)
    assert search.best is not None
    ours_s, bound_s = search.best.timeline.cost_s, search.bound_s
    return ours_s / theirs.cost_s, bound_s / theirs.cost_s, bound_s >= ours_s * (1 - PROVEN_GAP)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.usefixtures("keep_tables")
def test_no_program_is_ahead(program: str, tables: ResultTables, sized: Callable[[int, int], int]) -> None:
    cases, orders = [case for case in CASES if case.program == program], recorded()
    cases = cases[: sized(len(cases), 2)]
    found = {case.name: compared(case, orders[case.name]) for case in cases}
    freed = {f"{case.name}, half freed": compared(case, orders[case.name], kept=0.5) for case in cases}
    ratios, bounds, proven = zip(*found.values(), strict=True)
    tables.table("pipeline_programs", TITLE).add(
        program, program=program, cases=len(found), worst=f"{max(ratios):.3f}", median=f"{median(ratios):.3f}",
        best=f"{min(ratios):.3f}", bound=f"{median(bounds):.3f}", proven=sum(proven),
        freed=f"{max(ratio for ratio, *_ in freed.values()):.3f}",
    )  # fmt: skip
    behind = {name: ratio for name, (ratio, *_) in (found | freed).items() if ratio > 1 + PROVEN_GAP}
    assert not behind
