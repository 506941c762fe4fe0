"""A plan between real processes, beside the library's own collective: `gapless run taccl`."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.encodings.taccl.programs.training import train_tuned, train_with_plan
from gapless.encodings.taccl.question import RunQuestion
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.io.formats.collective_file import collective_of
from gapless.io.formats.measured_file import Measured, median_interval, write_measured
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.system import Answer, Session
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.torch.collectives.rank import CollectiveRun

__all__ = ["execute"]


def execute(question: RunQuestion, session: Session) -> Answer:
    """What the processes found: whether the result is right, and how long both took. Needs the extra `torch`."""
    plan, backend, output = question.plan, question.backend, question.output
    if (plan is None) == (question.tuned is None):
        raise InputError("give `plan`, or `tuned` with `model`, not both")
    if plan is None:
        return train_tuned(question, session)
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
        return train_with_plan(question, session, saved, report.makespan_s)
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
