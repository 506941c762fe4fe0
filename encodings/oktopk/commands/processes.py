"""Ok-Topk on processes of this machine; needs the extra `torch`.

`gapless run oktopk`: a plan, beside other sparse allreduces and the dense one. `gapless profile sparsity`: index sets
recorded in training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from gapless.encodings.oktopk.allreduce.lowering import received_words
from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES, Network, flat_topology
from gapless.encodings.oktopk.allreduce.others import gtopk, topkdsa
from gapless.encodings.oktopk.cuts.loads import region_counts
from gapless.encodings.oktopk.decision import SparseDecision
from gapless.encodings.oktopk.question import (
    BANDWIDTH_BYTES_PER_S,
    LATENCY_S,
    ProfileQuestion,
    RunQuestion,
)
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.profiles.sparsity.index_file import find_index_sets, write_index_sets
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.system import Answer, Session
from gapless.units import format_seconds

if TYPE_CHECKING:
    from gapless.torch.sparse.run import SparseRun

__all__ = ["execute", "profile_sparsity", "ranks_of"]


def execute(question: RunQuestion, session: Session) -> Answer:
    """Run the steps that the plan's schedule has, and compare bits and words."""
    plan, report = plan_to_run(question.plan, "oktopk")
    if not report.valid:
        return not_run(report)
    ranks = ranks_of(plan, question.ranks)
    from gapless.torch.sparse.plan import sparse_plan
    from gapless.torch.sparse.run import run_sparse

    sets = _sets(plan, question.indices, session.options.seed)
    selected = [
        sets.union(step) if plan.problem["selection"] == "all" else sets.global_top(step, int(sets.counts[step].max()))
        for step in range(sets.steps)
    ]
    session.say(f"running {ranks} processes ...")
    found = run_sparse(
        sparse_plan(plan), sets, selected, question.repeats, question.wait, session.options.stop, session.ranks
    )
    received, planned = found.received_words.sum(axis=0), received_words(plan.schedule)
    beside = _beside(sets, found)
    is_valid = not any(found.wrong.values()) and bool((received.sum(axis=1) == planned).all())
    is_valid = is_valid and all(row["received_words"] == row["planned_words"] for row in beside.values())
    data = {
        "ranks": ranks,
        "steps": list(SparseDecision.of(plan, question.plan).replayed_steps),
        "sums": ranks * sum(map(len, selected)),
        "wrong": sum(found.wrong.values()),
        "wrong_by": found.wrong,
        "beside": beside,
        "received_words": received.tolist(),
        "planned_words": planned.tolist(),
        "count": max(1, round(Record(dict(plan.problem), "plan: problem").number("density") * sets.elements)),
        "chosen": {name: float(counts.mean()) for name, counts in found.chosen.items()},
        "add_s": found.add_s,
        "predicted_s": report.makespan_s / sets.steps,
        "measured_s": {name: float(np.median(times_s)) for name, times_s in found.times_s.items()},
        "times_s": {name: times_s.tolist() for name, times_s in found.times_s.items()},
        "valid": is_valid,
    }
    return Answer(data, _run_text(data, plan.schedule.topology.name), is_valid=is_valid)


class _Beside(TypedDict):
    """Words that each rank received by another allreduce, and those of its schedule, on links between all ranks."""

    received_words: list[int]
    planned_words: list[int]


def _beside(sets: IndexSets, found: SparseRun) -> dict[str, _Beside]:
    network, steps = Network(flat_topology(sets.ranks, BANDWIDTH_BYTES_PER_S, LATENCY_S)), range(sets.steps)
    split = [topkdsa(sets, step, network, "direct") for step in steps]
    schedules = {"TopkDSA": [one for one in split if one], "gTopk": [gtopk(sets, step, network) for step in steps]}
    rows: dict[str, _Beside] = {}
    for name, planned in schedules.items():
        words = np.sum([received_words(one) for one in planned], axis=0)
        rows[name] = {
            "received_words": found.words_beside[name].sum(axis=0).tolist(), "planned_words": words.tolist(),
        }  # fmt: skip
    return rows


def ranks_of(plan: SavedPlan, asked: int | None) -> int:
    """Those of a plan. Raises `InputError` where others are asked for."""
    ranks = plan.schedule.topology.device_count
    if asked not in (None, ranks):
        raise InputError(f"ranks: must be those of the plan, {ranks}, got {asked}; plan for as many")
    return ranks


def _sets(plan: SavedPlan, indices: str | None, seed: int) -> IndexSets:
    """The index sets of the steps in the plan's schedule, with drawn values where none were recorded."""
    asked = Record(dict(plan.problem), "plan: problem")
    name = indices if indices else asked.text("indices")
    ranks, density = asked.integer("ranks", 1), asked.number("density")
    if indices is None and ":" in name and not name.startswith(("clustered", "drifting", "uniform")):
        raise InputError(f"indices: must be given, the file of the recorded sets {name!r} that the plan was made for")
    sets = find_index_sets(name, ranks)
    if not math.isclose(sets.density, density, rel_tol=1e-6):
        sets = find_index_sets(name, ranks, density)
    decision = SparseDecision.of(plan)
    steps = decision.replayed_steps
    if max(steps) >= sets.steps:
        raise InputError(f"indices: must have step {max(steps)}, which the plan's schedule has, got {sets.steps} steps")
    values = sets.values
    if values is None:
        values = np.random.default_rng(seed).standard_normal(len(sets.indices)).astype(np.float32)
    sets = _chosen(replace(sets, values=values), steps)
    counts = region_counts(sets, np.array(decision.cuts))
    initial = plan.schedule.graph.size_bytes[plan.schedule.graph.initial.tensors]
    is_same = np.array_equal(np.sort(ENTRY_BYTES * counts[counts > 0]), np.sort(initial))
    if sets.elements != plan.problem["elements"] or not is_same:
        raise InputError(f"indices: must be those that the plan was made for, {plan.problem['indices']!r}")
    return sets


def _chosen(sets: IndexSets, steps: Sequence[int]) -> IndexSets:
    """Some steps, in this order."""
    rows = [step * sets.ranks + rank for step in steps for rank in range(sets.ranks)]
    places = np.concatenate([np.arange(sets.start[row], sets.start[row + 1]) for row in rows])
    assert sets.values is not None
    return replace(
        sets, steps=len(steps), start=np.append(0, np.cumsum(np.diff(sets.start)[rows])),
        fitted=None if sets.fitted is None else sets.fitted[rows],
        indices=sets.indices[places], values=sets.values[places],
    )  # fmt: skip


def _run_text(data: Mapping[str, Any], machine: str) -> str:
    measured_s = data["measured_s"]
    words = [sum(each) for each in data["received_words"]]
    is_planned = words == data["planned_words"]
    parts = " + ".join(f"{sum(column):,}" for column in zip(*data["received_words"], strict=True))
    wrong = "the bits of the dense sum" if not data["wrong"] else f"{data['wrong']} are wrong"
    lines = [
        ("sums", f"{data['sums']:,} on all ranks: {wrong}"),
        ("received", f"{max(words):,} words by the busiest rank, {'as' if is_planned else 'other than'} planned"),
        ("", f"{parts} words by all: contributions, balancing, sums"),
        ("chosen", _chosen_text(data)),
        ("adding", f"{format_seconds(data['add_s'])} an entry, for `solve oktopk --add`"),
        ("predicted", f"{format_seconds(data['predicted_s'])} a step on {machine}"),
        *(("", _beside_text(name, row)) for name, row in data["beside"].items()),
        *(("measured" if name == "plan" else name, format_seconds(time_s)) for name, time_s in measured_s.items()),
    ]
    return "\n".join(f"{title:<15} {text}" for title, text in lines)


def _chosen_text(data: Mapping[str, Any]) -> str:
    """Entries of a rank against k. Of Gaussiank's, no more are known than were recorded, which are the plan's."""
    shares = []
    for name, chosen in data["chosen"].items():
        more = " or more" if name != "plan" and chosen == data["chosen"]["plan"] else ""
        shares.append(f"{name} {chosen:,.0f} ({chosen / data['count']:.2f} k){more}")
    return f"by a rank, of k = {data['count']:,}: {', '.join(shares)}"


def _beside_text(name: str, row: _Beside) -> str:
    is_planned = row["received_words"] == row["planned_words"]
    return f"{max(row['received_words']):,} by {name}, {'as' if is_planned else 'other than'} in its schedule"


def profile_sparsity(question: ProfileQuestion, session: Session) -> Answer:
    """Train, record what each rank selects, and write the sets."""
    check_writable(question.output)
    if not question.output.endswith(".npz"):
        raise InputError(f"output: must end in .npz, got {question.output!r}")
    from gapless.torch.sparse.training import TrainingTask, recorded

    counts = question.steps, question.ranks, question.learning_rate, question.wait
    how = question.optimizer, question.weight_decay
    task = TrainingTask(question.model, session.options.seed, *counts, *how, estimate=question.estimate)
    session.say(f"training {question.model} in {question.ranks} processes ...")
    found = recorded(task, question.density, session.options.stop, session.ranks)
    if session.is_first:
        write_index_sets(question.output, found.sets)
    sets, losses = found.sets, found.losses
    fill_in = [len(sets.union(step)) / sets.elements for step in (0, sets.steps - 1)]
    data = {
        "name": sets.name, "elements": sets.elements, "parameters": len(sets.parameter_names), "ranks": sets.ranks,
        "steps": sets.steps, "density": sets.density, "fill_in": fill_in, "losses": list(losses),
        "output": question.output,
    }  # fmt: skip
    text = (
        f"{int(sets.counts[-1].mean()):,} of {sets.elements:,} entries a rank and step, in {len(sets.parameter_names)} "
        f"parameters; {sets.steps} steps of {sets.ranks} ranks",
        f"density {sets.density:.2%}; of all ranks together {fill_in[0]:.2%} to {fill_in[1]:.2%}, first to last step",
        f"loss {losses[0]:.3f} to {losses[-1]:.3f}",
    )
    return Answer(data, "\n".join(text))
