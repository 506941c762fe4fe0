"""A plan's step on ranks that wait instead of computing, predicted and measured: `gapless run pipeline --emulate`."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

from gapless.encodings.pipeline.execution.times import Times, step_s, times_of
from gapless.encodings.pipeline.programs.program import Program
from gapless.encodings.pipeline.question import RunQuestion
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.system import Answer, Session
from gapless.units import format_seconds

if TYPE_CHECKING:
    from gapless.torch.pipeline.emulated import EmulatedRun, EmulatedTask

__all__ = ["compared_text", "emulated"]


def emulated(question: RunQuestion, session: Session, program: Program, schedule: Schedule) -> Answer:
    """The step that order and times predict, and the one that processes take. Needs the extra `torch`.

    The plan's times are scaled so that an op takes `question.op` on the mean. Raises `InputError` where none takes any.
    """
    from gapless.torch.pipeline.emulated import emulate

    times = times_of(schedule, program.order)
    if not times.mean_op_s:
        raise InputError("plan: must have ops that take time to be emulated, got none; leave out emulate")
    times = times.scaled(question.op / times.mean_op_s)
    times = times if question.emulate == "links" else times.without_hops()
    task = _task(question, program, times)
    session.say(f"running {program.order.ranks} processes that wait instead of computing ...")
    found = emulate(program.order, task, session.options.stop)
    return _answer(question, program, times, found)


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


def _answer(question: RunQuestion, program: Program, times: Times, found: EmulatedRun) -> Answer:
    order, predicted_s = program.order, step_s(program.order, times)
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
    }
    links = "links too" if question.emulate == "links" else "messages take what they take"
    lines = [
        ("ran", f"{order.ranks} processes, {len(order.rank_of_stage)} stages, {order.micro_batches} micro-batches"),
        ("emulated", f"ops that wait {format_seconds(times.mean_op_s)} on the mean, {links}"),
        ("step", compared_text(predicted_s, found.step_s)),
        ("overhead of an op", f"{format_seconds(overhead_s[0])}, {format_seconds(overhead_s[1])} on the mean"),
    ]
    return Answer(data, "\n".join(f"{title:<17} {text}" for title, text in lines))


def compared_text(predicted_s: float, measured_s: tuple[float, ...]) -> str:
    """A step that was predicted, and the median of those measured."""
    middle_s, count = median(measured_s), len(measured_s)
    said = f"predicted {format_seconds(predicted_s)}, measured {format_seconds(middle_s)} (median of {count})"
    return f"{said}, {middle_s / predicted_s:.3f} of it"
