"""A training with a plan's sums, or an installed selector's, beside the library's: `gapless run taccl --model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gapless.encodings.taccl.question import RunQuestion
from gapless.errors import InputError
from gapless.io.formats.collective_file import collective_of
from gapless.io.formats.tuned_file import read_selector
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_seconds

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan
    from gapless.torch.collectives.training import TrainingRun, TrainingTask

__all__ = ["train_tuned", "train_with_plan"]

_ROUNDING = 1e-3
"""Losses that differ by a smaller share are equal: sums are rounded in another order, and steps add that up."""


def train_with_plan(question: RunQuestion, session: Session, saved: SavedPlan, plan_s: float) -> Answer:
    """The same training with the plan's sums and with the library's: losses side by side, and what a step takes."""
    from gapless.torch.collectives.training import train_by_plan

    plan = question.plan or ""
    collective, ranks = collective_of(saved.problem, plan), saved.schedule.topology.device_count
    if collective.name != "allreduce":
        raise InputError(f"{plan}: a training sums gradients by a plan of allreduce, got {collective.name}")
    _check(question)
    bucket_bytes = int(saved.schedule.graph.size_bytes[0]) * len(collective.inputs[0])
    task = _task(question, session, ranks, bucket_bytes)
    found = train_by_plan(plan, task, session.options.stop, session.ranks)
    return _answer(found, task, "the plan", {"allreduce_predicted_s": plan_s, "sent_bytes": list(found.sent_bytes)})


def train_tuned(question: RunQuestion, session: Session) -> Answer:
    """The same training with the winners of `gapless tune` installed, and without; buckets are of a size that they
    serve.
    """
    tuned = question.tuned or ""
    if question.model is None:
        raise InputError("tuned: goes with model: winners are run by a training; give a model, such as train:net")
    _check(question)
    selector = read_selector(tuned)
    everyone = tuple(range(selector.ranks))
    served = [one for one in selector.ranges if (one.collective, one.ranks) == ("allreduce", everyone)]
    if not served:
        rule = f"must have a winner of allreduce among all {selector.ranks} ranks"
        raise InputError(f"{tuned}: {rule}, got none; tune for allreduce, and for other sizes")
    from gapless.torch.collectives.training import train_by_winners

    widest = max(served, key=lambda one: one.max_bytes - one.min_bytes)
    # A bucket ends with the tensor that fills it, so that it is larger.
    task = _task(question, session, selector.ranks, max(widest.min_bytes, widest.max_bytes // 2))
    found = train_by_winners(tuned, task, session.options.stop, session.ranks)
    return _answer(found, task, "the winners", {"tuned": tuned, "taken": found.taken, "left": found.left})


def _check(question: RunQuestion) -> None:
    if question.backend != "gloo" or question.output is not None:
        field = "output" if question.output is not None else "backend"
        raise InputError(f"{field}: doesn't go with model: a training runs over gloo, and is printed; leave it out")


def _task(question: RunQuestion, session: Session, ranks: int, bucket_bytes: int) -> TrainingTask:
    from gapless.torch.collectives.training import TrainingTask

    session.say(f"training in {ranks} processes, twice {question.steps} steps ...")
    return TrainingTask(
        ranks, question.model or "", question.steps, bucket_bytes, not question.without_turns, session.options.seed,
        question.wait,
    )  # fmt: skip


def _answer(found: TrainingRun, task: TrainingTask, who: str, more: dict[str, object]) -> Answer:
    """Both trainings beside each other."""
    steps_s = [float(np.median(times)) for times in (found.plan_s[1:], found.library_s[1:])] if task.steps > 1 else []
    data = {
        "ranks": task.ranks, "model": task.model, "bucket_bytes": task.bucket_bytes,
        "plan_losses": found.plan_losses.tolist(), "library_losses": found.library_losses.tolist(),
        "apart": found.apart, "plan_times_s": found.plan_s.tolist(), "library_times_s": found.library_s.tolist(),
        "plan_step_s": steps_s[0] if steps_s else None, "library_step_s": steps_s[1] if steps_s else None, **more,
    }  # fmt: skip
    heads = ["gradients summed by", "first loss", "last loss", "median step"]
    rows = [
        [name, f"{losses[0]:.6f}", f"{losses[-1]:.6f}", format_seconds(steps_s[k]) if steps_s else "-"]
        for k, (name, losses) in enumerate(((who, found.plan_losses), ("gloo", found.library_losses)))
    ]
    lines = [table([heads, *rows]), f"losses of a step differ by {found.apart:.1e} at most"]
    if found.left or "taken" in more:
        lines.append(f"plans summed {found.taken} of {found.taken + found.left} buckets, gloo the others")
    return Answer(data, "\n".join(lines), is_valid=found.apart <= _ROUNDING)
