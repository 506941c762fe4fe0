"""A plan's step on ranks that wait instead of computing, predicted and measured: `gapless run pipeline --emulate`."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from gapless.encodings.pipeline.execution.copies import Copies, Kept, copies_of, kept_of
from gapless.encodings.pipeline.execution.times import Times, step_s, times_of
from gapless.encodings.pipeline.programs.program import Program
from gapless.encodings.pipeline.question import RunQuestion
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.system import Answer, Session
from gapless.units import format_count, format_seconds

if TYPE_CHECKING:
    from gapless.torch.pipeline.emulated import EmulatedRun, EmulatedTask

__all__ = ["compared_text", "emulated", "kept_text"]

_MOST_COPY_BYTES = 2**22
"""Larger copies are made of so many bytes; their time is the plan's."""


def emulated(question: RunQuestion, session: Session, program: Program, schedule: Schedule) -> Answer:
    """The step that order and times predict, and the one that processes take. Needs the extra `torch`.

    The plan's times are scaled so that an op takes `question.op` on the mean. Raises `InputError` where none takes any.
    """
    from gapless.torch.pipeline.emulated import emulate

    copies, kept = copies_of(schedule, program.order, program.offloaded), kept_of(schedule, program.order)
    times = times_of(schedule, program.order, copies)
    if not times.mean_op_s:
        raise InputError("plan: must have ops that take time to be emulated, got none; leave out emulate")
    times = times.scaled(question.op / times.mean_op_s)
    times = times if question.emulate == "links" else times.without_hops()
    task = _task(question, program, times)
    session.say(f"running {program.order.ranks} processes that wait instead of computing ...")
    found = emulate(program.order, replace(task, **_copied(program, times, copies, kept)), session.options.stop)
    return _answer(question, program, step_s(program.order, times, copies), times, kept, found)


def _copied(program: Program, times: Times, copies: Copies, kept: Kept) -> dict[str, Any]:
    """What a task says of what ranks keep, and of copies: all of them are smaller by the same factor."""
    rows = [(a.stage, a.kind, a.micro_batch, kept.takes[a], kept.leaves[a], kept.moved.get(a, 0))
            for a in program.order.actions]  # fmt: skip
    most = max(kept.moved.values(), default=0)
    found = {"copies": copies.rows(program.order), "kept": tuple(rows)}
    if not most:
        return found
    largest = max(kept.moved, key=lambda forward: kept.moved[forward])
    scale = max(1, most // _MOST_COPY_BYTES)
    return {**found, "byte_scale": scale, "offload_s_per_byte": times.copy_s[largest] / (most // scale)}


def _task(question: RunQuestion, program: Program, times: Times) -> EmulatedTask:
    from gapless.torch.pipeline.emulated import MOST_MESSAGE_BYTES, EmulatedTask

    has_links = question.emulate == "links"
    most = MOST_MESSAGE_BYTES if has_links else max(program.boundary_bytes, default=0)
    hops = times.hop_s.items() if has_links else ()
    return EmulatedTask(
        rank_of_stage=program.order.rank_of_stage,
        micro_batches=program.order.micro_batches,
        op_s=tuple((each.stage, each.kind, each.micro_batch, s) for each, s in times.op_s.items()),
        hop_s=tuple((each.stage, "F" if each.kind == "F" else "B", each.micro_batch, s) for each, s in hops),
        boundary_bytes=tuple(8 * max(1, min(size, most) // 8) for size in program.boundary_bytes),
        steps=max(1, question.repeats),
        form=question.form,
        wait_s=question.wait,
    )


def _answer(
    question: RunQuestion, program: Program, predicted_s: float, times: Times, kept: Kept, found: EmulatedRun
) -> Answer:
    order = program.order
    overhead_s = median(found.overhead_s), fmean(found.overhead_s)
    data = {
        "emulated": question.emulate,
        "op_s": times.mean_op_s,
        "predicted_s": predicted_s,
        "measured_s": median(found.step_s),
        "ratio": median(found.step_s) / predicted_s,
        "measured_times_s": list(found.step_s),
        "overhead_s": {"median": overhead_s[0], "mean": overhead_s[1]},
        "rank_of_stage": list(order.rank_of_stage),
        "kept_bytes": list(found.kept_bytes),
        "planned_kept_bytes": list(kept.peak_bytes),
    }
    links = "links too" if question.emulate == "links" else "messages take what they take"
    lines = [
        ("ran", f"{order.ranks} processes, {len(order.rank_of_stage)} stages, {_fed(program)}"),
        ("emulated", f"ops that wait {format_seconds(times.mean_op_s)} on the mean, {links}"),
        ("step", compared_text(predicted_s, found.step_s)),
        ("kept bytes", kept_text(kept.peak_bytes, found.kept_bytes)),
        ("overhead of an op", f"{format_seconds(overhead_s[0])}, {format_seconds(overhead_s[1])} on the mean"),
    ]
    if program.offloaded:
        lines.append(("on hosts", f"what {len(program.offloaded)} forwards keep, in the meantime"))
    return Answer(data, "\n".join(f"{title:<17} {text}" for title, text in lines))


def _fed(program: Program) -> str:
    whole = f"{program.order.micro_batches // program.slices} micro-batches"
    return whole if program.slices == 1 else f"{whole} in {program.slices} slices"


def kept_text(planned: tuple[int, ...], measured: tuple[int, ...]) -> str:
    """The most that each rank keeps of micro-batches at once."""
    found = " ".join(map(format_count, measured))
    return f"{found} at most: " + (
        "the plan's" if measured == planned else f"the plan has {' '.join(map(format_count, planned))}"
    )


def compared_text(predicted_s: float, measured_s: tuple[float, ...]) -> str:
    """A step that was predicted, and the median of those measured."""
    middle_s, count = median(measured_s), len(measured_s)
    said = f"predicted {format_seconds(predicted_s)}, measured {format_seconds(middle_s)} (median of {count})"
    return f"{said}, {middle_s / predicted_s:.3f} of it"
