"""A training through a plan, `gapless run pipeline --steps`: its losses, and what was sent, beside what is expected.

The plain run is held against one process, bit by bit where no sum has more than two terms, whose order could differ.
What was sent is held against the plan's messages and the compressors' sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gapless.encodings.pipeline.programs.program import Program
from gapless.encodings.pipeline.question import RunQuestion
from gapless.errors import InputError
from gapless.io.record import Record
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.pipeline.layers import LayeredModel
    from gapless.torch.pipeline.run import Task
    from gapless.torch.pipeline.training import Trained, Training, Variant

__all__ = ["trained"]

_LAST = 10
"""The last loss is the mean over this part of the steps: a tenth."""
_ROUNDED = 1e-4
"""Relative, of the second step's loss: what another order of sums may change in one update."""


def trained(question: RunQuestion, session: Session, program: Program, asked: Record, task: Task) -> Answer:
    """The losses of all runs. `asked`: the plan's question. Needs the extra `torch`."""
    from gapless.torch.pipeline.training import Training, train, trained_alone

    _check(question)
    training = Training(
        question.steps, question.learning_rate, question.optimizer, question.warm_up, asked.integer("replicas", 1),
        program.sum_modes if asked.integer("replicas", 1) > 1 else (), asked.boolean("fuses_embedding", True),
    )  # fmt: skip
    variants = _variants(program, training)
    processes = program.order.ranks * training.replicas
    session.say(f"training {len(variants)} times in {processes} processes ...")
    runs = train(program.order, task, training, variants, session.options.stop)
    session.say("training in one process ...")
    alone = trained_alone(task, training)
    return _answer(program, task, training, variants, [alone, *runs])


def _check(question: RunQuestion) -> None:
    if question.error_propagation:
        raise InputError("error_propagation: a training runs with and without it; leave it out, or the steps")
    if question.warm_up >= question.steps:
        raise InputError(f"warm_up: must be less than steps, {question.steps}, got {question.warm_up}")


def _variants(program: Program, training: Training) -> list[Variant]:
    from gapless.torch.pipeline.training import Variant

    variants = [Variant("plain")]
    if program.hop_modes or any(mode != "plain" for mode in training.sum_modes):
        variants.append(Variant("plan", compresses=True))
    if program.hop_modes:
        variants.append(Variant("plan, errors propagated", compresses=True, propagates=True))
    return variants


def _answer(
    program: Program, task: Task, training: Training, variants: Sequence[Variant], runs: Sequence[Trained]
) -> Answer:
    alone, plain, model = runs[0], runs[1], task.load()
    equal = sum(map(float.__eq__, alone.losses, plain.losses))
    is_exact = training.replicas <= 2 and not (model.shared and training.replicas > 1 and training.fuses_embedding)
    agrees = equal == training.steps if is_exact else _is_close(alone, plain)
    same_sizes = model.boundary_bytes(program.cut, task.micro_batches) == program.boundary_bytes
    expected = [_expected(program, model, training, variant, same_sizes) for variant in variants]
    sent = all(_is_sent(run, each) for run, each in zip(runs[1:], expected, strict=True))
    rows = [{**asdict(run), "last_loss": _last(run)} for run in runs]
    data = {
        **asdict(training), "runs": rows, "bit_equal_losses": equal, "expected_bytes": expected,
        "same_boundaries": same_sizes,
    }  # fmt: skip
    return Answer(data, _text(program, training, runs, equal, sent, same_sizes), is_valid=agrees and sent)


def _is_close(alone: Trained, plain: Trained) -> bool:
    """The first step is equal, the second all but."""
    (first, second), (own, then) = alone.losses[:2], plain.losses[:2]
    return first == own and abs(then - second) <= _ROUNDED * abs(second)


def _expected(
    program: Program, model: LayeredModel, training: Training, variant: Variant, same_sizes: bool
) -> dict[str, list[int]]:
    """What each process sends in all steps: between stages, where sizes are the plan's, and to other replicas."""
    from gapless.torch.pipeline.sums import planned_sum_bytes

    rank = program.order.rank_of_stage
    compressed = training.steps - training.warm_up if variant.compresses else 0
    steps = (training.steps - compressed, compressed)
    hops = [
        steps[0] * plain + steps[1] * coded
        for plain, coded in zip(program.plain_sent_bytes, program.sent_bytes, strict=True)
    ]
    sums, parts = [0] * program.order.ranks, model.untied().stages(program.cut)
    left_out = [name for pair in model.shared for name in pair] if training.fuses_embedding else []
    if training.replicas > 1:
        modes = training.sum_modes or ("plain",) * len(parts)
        for stage, part in enumerate(parts):
            each = [planned_sum_bytes(part, mode, left_out) for mode in ("plain", modes[stage])]
            sums[rank[stage]] += steps[0] * each[0] + steps[1] * each[1]
    found = {"sum_bytes": sums * training.replicas}
    return {"hop_bytes": hops * training.replicas, **found} if same_sizes else found


def _is_sent(run: Trained, expected: dict[str, list[int]]) -> bool:
    return all(list(getattr(run, name)) == sizes for name, sizes in expected.items())


def _last(run: Trained) -> float:
    part = run.losses[-max(1, len(run.losses) // _LAST) :]
    return sum(part) / len(part)


def _text(
    program: Program, training: Training, runs: Sequence[Trained], equal: int, sent: bool, same_sizes: bool
) -> str:
    order, plain = program.order, _last(runs[1])
    what = f"{order.ranks} ranks x {training.replicas} replicas, {len(order.rank_of_stage)} stages"
    how = f"{training.optimizer} at {training.learning_rate:g}, {training.warm_up} of warm-up"
    if not same_sizes:
        said = "of sums as the compressors say; the plan's messages are of another model or other micro-batches"
    else:
        said = "as the plan and the compressors say" if sent else "NOT as the plan and the compressors say"
    lines = [
        ("trained", f"{what}, {order.micro_batches} micro-batches, {training.steps} steps of {how}"),
        ("losses", f"{equal} of {training.steps} of the plain run bit-equal to one process"),
        ("sent bytes", said),
    ]
    steps = training.steps
    table: list[tuple[str, ...]] = [("", "last loss", "to plain", "hops", "sums", "embedding")]
    for run in runs:
        kinds = (run.hop_bytes, run.sum_bytes, run.embedding_bytes)
        cells = (f"{sum(kind) / steps:.0f}" if kind else "" for kind in kinds)
        table.append((run.name, f"{_last(run):.4f}", f"{_last(run) / plain - 1:+.2%}", *cells))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    shown = ["  ".join(cell.rjust(width) if k else cell.ljust(width) for k, (cell, width) in
                       enumerate(zip(row, widths, strict=True))).rstrip() for row in table]  # fmt: skip
    note = f"last loss: mean over the last {max(1, steps // _LAST)} steps; the others: bytes a step, of all processes"
    return "\n".join([*(f"{title:<16} {text}" for title, text in lines), *shown, note])
