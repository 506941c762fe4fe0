"""A plan between real processes, beside the library's own collective: `gapless run taccl`."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gapless.encodings.taccl.question import RunQuestion
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.io.formats.collective_file import collective_of
from gapless.io.formats.measured_file import Measured, median_interval, write_measured
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan
    from gapless.torch.collectives.rank import CollectiveRun

__all__ = ["execute"]

_ROUNDING = 1e-3
"""Losses that differ by a smaller share are equal: sums are rounded in another order, and steps add that up."""


def execute(question: RunQuestion, session: Session) -> Answer:
    """What the processes found: whether the result is right, and how long both took. Needs the extra `torch`."""
    plan, backend, output = question.plan, question.backend, question.output
    if output is not None:
        check_writable(output)
    saved, report = plan_to_run(plan, "taccl")
    if not report.valid:
        return not_run(report)
    from gapless.encodings.taccl.baselines.gloo import SAME, library_baseline, slower_than
    from gapless.torch.collectives.rank import Task, run_collective
    from gapless.torch.processes import check_backend

    collective, sizes = collective_of(saved.problem, plan), set(saved.schedule.graph.size_bytes.tolist())
    if len(sizes) > 1 and collective.chunk_sizes is None:
        raise InputError(f"{plan}: run takes a plan whose chunks are of one size, got {len(sizes)} sizes")
    ranks, chunk_bytes = saved.schedule.topology.device_count, max(sizes)
    check_backend(backend)
    if backend == "mpi" and session.ranks is None:
        raise InputError("backend: mpi takes ranks that its launcher has started, which sets RANK and WORLD_SIZE")
    library = library_baseline(backend, saved.schedule.topology, collective, chunk_bytes)
    if library is not None and library.makespan_s < report.makespan_s * (1 - SAME):
        slower = slower_than(library, backend, report.makespan_s)
        if not question.anyway:
            raise InputError(f"{plan}: {slower}; use {backend} itself, or run the plan all the same with --anyway")
        session.say(slower)
    task = Task(
        ranks, chunk_bytes, question.repeats, not question.without_turns, session.options.seed, question.wait, backend
    )
    if question.model is not None:
        return _trained(question, session, saved, report.makespan_s)
    session.say(f"running {ranks} processes ...")
    found = run_collective(plan, task, session.options.stop, session.ranks)
    measured = Measured(
        plan_sha256=hashlib.sha256(Path(plan).read_bytes()).hexdigest(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        backend=backend,
        ranks=ranks,
        predicted_s=report.makespan_s,
        library_predicted_s=None if library is None else library.makespan_s,
        measured_times_s=tuple(found.plan_s.tolist()),
        library_times_s=tuple(found.library_s.tolist()),
    )
    if output is not None and session.is_first and not found.wrong:
        write_measured(output, measured)
    return _answer(measured, found, output)


def _trained(question: RunQuestion, session: Session, saved: SavedPlan, plan_s: float) -> Answer:
    """The same training with the plan's sums and with the library's: losses side by side, and what a step takes."""
    from gapless.torch.collectives.training import TrainingTask, train_by_plan

    collective, ranks = collective_of(saved.problem, question.plan), saved.schedule.topology.device_count
    if collective.name != "allreduce":
        raise InputError(f"{question.plan}: a training sums gradients by a plan of allreduce, got {collective.name}")
    if question.backend != "gloo" or question.output is not None:
        field = "output" if question.output is not None else "backend"
        raise InputError(f"{field}: doesn't go with model: a training runs over gloo, and is printed; leave it out")
    bucket_bytes = int(saved.schedule.graph.size_bytes[0]) * len(collective.inputs[0])
    task = TrainingTask(
        ranks, question.model or "", question.steps, bucket_bytes, not question.without_turns, session.options.seed,
        question.wait,
    )  # fmt: skip
    session.say(f"training in {ranks} processes, twice {task.steps} steps ...")
    found = train_by_plan(question.plan, task, session.options.stop, session.ranks)
    steps_s = [float(np.median(times)) for times in (found.plan_s[1:], found.library_s[1:])] if task.steps > 1 else []
    data = {
        "ranks": ranks, "model": task.model, "bucket_bytes": bucket_bytes, "allreduce_predicted_s": plan_s,
        "plan_losses": found.plan_losses.tolist(), "library_losses": found.library_losses.tolist(),
        "apart": found.apart, "plan_times_s": found.plan_s.tolist(), "library_times_s": found.library_s.tolist(),
        "plan_step_s": steps_s[0] if steps_s else None, "library_step_s": steps_s[1] if steps_s else None,
        "sent_bytes": list(found.sent_bytes),
    }  # fmt: skip
    heads = ["gradients summed by", "first loss", "last loss", "median step"]
    rows = [
        [who, f"{losses[0]:.6f}", f"{losses[-1]:.6f}", format_seconds(steps_s[k]) if steps_s else "-"]
        for k, (who, losses) in enumerate((("the plan", found.plan_losses), ("gloo", found.library_losses)))
    ]
    text = f"{table([heads, *rows])}\nlosses of a step differ by {found.apart:.1e} at most"
    return Answer(data, text, is_valid=found.apart <= _ROUNDING)


def _answer(measured: Measured, found: CollectiveRun, output: str | None) -> Answer:
    data = {
        "wrong": found.wrong,
        "backend": measured.backend,
        "predicted_s": measured.predicted_s,
        **_interval("measured", measured.measured_times_s),
        "library_predicted_s": measured.library_predicted_s,
        **_interval("library", measured.library_times_s),
        "ratio": measured.ratio,
        "sent_bytes": list(found.sent_bytes),
        "output": output,
    }
    lines = [
        ("result", "as the collective is defined" if not found.wrong else f"{found.wrong} numbers are wrong"),
        ("sent", f"{format_bytes(sum(found.sent_bytes))} by all ranks together"),
        *measured.rows(),
    ]
    return Answer(data, "\n".join(f"{title:<18} {text}" for title, text in lines), is_valid=not found.wrong)


def _interval(name: str, times_s: tuple[float, ...]) -> dict[str, object]:
    """The median with its interval, and all times; None where nothing was measured."""
    median_s, low_s, high_s, confidence = median_interval(times_s) if times_s else (None,) * 4
    interval = None if median_s is None else {"low_s": low_s, "high_s": high_s, "confidence": confidence}
    return {f"{name}_s": median_s, f"{name}_interval": interval, f"{name}_times_s": list(times_s)}
