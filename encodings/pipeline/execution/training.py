"""A training through a plan, `gapless run pipeline --steps`: its losses, and what was sent, beside what is expected.

The plain run is held against one process, bit by bit where no sum has more than two terms, whose order could differ.
What was sent is held against the plan's messages and the compressors' sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gapless.encodings.pipeline.execution.rules import variants_of
from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.encodings.pipeline.question import RunQuestion
from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import write_torch_pipeline
from gapless.io.record import Record
from gapless.processes.plans_to_run import plan_to_run
from gapless.report.text import table
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.pipeline.layers import LayeredModel
    from gapless.torch.pipeline.run import Task
    from gapless.torch.pipeline.training import PipelineTraining, Trained, Training, Variant

__all__ = ["trained", "training"]

_LAST = 10
"""The last loss is the mean over this part of the steps: a tenth."""
_ROUNDED = 1e-4
"""Relative, of the second step's loss: what another order of sums may change in one update."""


def trained(question: RunQuestion, session: Session, program: Program, asked: Record, task: Task) -> Answer:
    """The losses of all runs. `asked`: the plan's question. Needs the extra `torch`."""
    from gapless.torch.pipeline.training import Training, train, trained_alone

    _check(question)
    how = Training(
        question.steps, question.learning_rate, question.optimizer, question.warm_up, asked.integer("replicas", 1),
        question.errors_every,
    )  # fmt: skip
    variants = variants_of(question, program, how.replicas, asked.boolean("fuses_embedding", True))
    processes = program.order.ranks * how.replicas
    session.say(f"training {len(variants)} times in {processes} processes ...")
    runs = train(program.order, task, how, variants, session.options.stop)
    session.say("training in one process ...")
    alone = trained_alone(task, how)
    return _answer(program, task, how, variants, [alone, *runs])


def training(
    plan: str, model: LayeredModel | str, *, learning_rate: float = RunQuestion.learning_rate,
    optimizer: str = RunQuestion.optimizer, error_propagation: bool = RunQuestion.error_propagation,
    warm_up: int = RunQuestion.warm_up,
) -> PipelineTraining:  # fmt: skip
    """This process's part of a training through a plan file; `step(inputs, targets)` is one step of it.

    All processes call it once `torch.distributed` has begun: process d * ranks + r is rank r of replica d. `model`: the
    same in all of them, its layers or their name as `--model` has it. Raises `InputError` where the plan can't run, or
    is for other layers or processes. Needs the extra `torch`.
    """
    from gapless.torch.pipeline.layers import load_layers
    from gapless.torch.pipeline.run import Task
    from gapless.torch.pipeline.sums import Groups
    from gapless.torch.pipeline.training import PipelineTraining, Training

    saved, report = plan_to_run(plan, "pipeline")
    if not report.valid:
        raise InputError(f"{plan}: must replay clean; gapless check says what it breaks")
    program, asked = program_of(saved), Record(dict(saved.problem), "problem")
    micro_batches, ranks, replicas = (
        program.order.micro_batches,
        program.order.rank_of_stage,
        asked.integer("replicas", 1),
    )
    layered = load_layers(model, micro_batches) if isinstance(model, str) else model
    if len(layered.layers) != asked.integer("layers", 1):
        raise InputError(f"model: {plan} is for {asked.integer('layers', 1)} layers, got {len(layered.layers)}")
    program.check_policies("torch", runs_layers=True)
    program.check_stays("a training")
    question = RunQuestion(model=layered.name, plan=plan, ranks=program.order.ranks)
    found = variants_of(question, program, replicas, asked.boolean("fuses_embedding", True))
    variant = replace(found[min(1, len(found) - 1)], propagates=error_propagation)
    task = Task(
        layered.name, {}, 0, program.cut, ranks, micro_batches, (), error_propagation, question.form, question.wait,
        program.recomputed, policies=program.policies,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        write_torch_pipeline(Path(folder) / "schedule.csv", program.order, question.form)
        how = Training(1, learning_rate, optimizer, warm_up, replicas)
        groups = Groups.made(program.order.ranks, replicas, (ranks[0], ranks[-1]))
        return PipelineTraining(layered, task, how, variant, groups, Path(folder))


def _check(question: RunQuestion) -> None:
    if question.error_propagation:
        raise InputError("error_propagation: a training runs with and without it; leave it out, or the steps")
    if question.warm_up >= question.steps:
        raise InputError(f"warm_up: must be less than steps, {question.steps}, got {question.warm_up}")


def _answer(
    program: Program, task: Task, training: Training, variants: Sequence[Variant], runs: Sequence[Trained]
) -> Answer:
    alone, plain, model = runs[0], runs[1], task.load()
    equal = sum(map(float.__eq__, alone.losses, plain.losses))
    is_exact = training.replicas <= 2 and not (model.shared and training.replicas > 1 and variants[0].fuses_embedding)
    agrees = equal == training.steps if is_exact else _is_close(alone, plain)
    same_sizes = model.boundary_bytes(program.cut, task.micro_batches) == program.boundary_bytes
    expected = [_expected(program, model, training, variant, same_sizes) for variant in variants]
    sent = all(_is_sent(run, each) for run, each in zip(runs[1:], expected, strict=True))
    rows = [_stored({**asdict(run), "last_loss": _last(run), **_means(run)}) for run in runs]
    data = {
        **asdict(training), "runs": rows, "bit_equal_losses": equal, "expected_bytes": expected,
        "same_boundaries": same_sizes,
    }  # fmt: skip
    return Answer(data, _text(program, training, runs, equal, sent, same_sizes), is_valid=agrees and sent)


def _stored(value: object) -> object:
    """As JSON has it: None for numbers that aren't finite, as a training that diverges has them."""
    if isinstance(value, Mapping):
        return {key: _stored(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_stored(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _is_close(alone: Trained, plain: Trained) -> bool:
    """The first step is equal, the second all but."""
    (first, second), (own, then) = alone.losses[:2], plain.losses[:2]
    return first == own and abs(then - second) <= _ROUNDED * abs(second)


def _expected(
    program: Program, model: LayeredModel, training: Training, variant: Variant, same_sizes: bool
) -> dict[str, list[int]]:
    """What each process sends in all steps: between stages, where sizes are the plan's, and to other replicas."""
    from gapless.torch.pipeline.sums import planned_sum_bytes

    rank, compressed = program.order.rank_of_stage, training.steps - training.warm_up
    sums, parts = [0] * program.order.ranks, model.untied().stages(program.cut)
    left_out = [name for pair in model.shared for name in pair] if variant.fuses_embedding else []
    if training.replicas > 1:
        modes = variant.sum_modes or ("plain",) * len(parts)
        for stage, part in enumerate(parts):
            each = [planned_sum_bytes(part, mode, left_out) for mode in ("plain", modes[stage])]
            sums[rank[stage]] += training.warm_up * each[0] + compressed * each[1]
    found = {"sum_bytes": sums * training.replicas}
    if not same_sizes:
        return found
    steps = ((training.warm_up, program.plain_sent_bytes), (compressed, _coded(program, model, variant)))
    hops = [sum(count * sent[r] for count, sent in steps) for r in range(program.order.ranks)]
    return {"hop_bytes": hops * training.replicas, **found}


def _coded(program: Program, model: LayeredModel, variant: Variant) -> Sequence[int]:
    """What each rank sends in a compressed step: the plan's bytes, or those that compressors say of its shapes."""
    hops = {(hop, m): mode for hop, m, mode in variant.hop_modes}
    if hops == program.hop_modes and not variant.forward_mode:
        return program.sent_bytes
    from gapless.torch.compression import HopCompressor

    rank, sent = program.order.rank_of_stage, list(program.plain_sent_bytes)
    values = model.boundaries(program.cut, program.order.micro_batches)

    def saved_bytes(hop: int, mode: str) -> int:
        return int(values[hop].nbytes - HopCompressor(mode).room(values[hop]).nbytes)

    for (hop, _), mode in hops.items():
        sent[rank[hop + 1]] -= saved_bytes(hop, mode)
    for hop in range(len(values)) if variant.forward_mode else ():
        if rank[hop] != rank[hop + 1]:
            sent[rank[hop]] -= program.order.micro_batches * saved_bytes(hop, variant.forward_mode)
    return sent


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
    rows = [["", "last loss", "to plain", "hops", "sums", "embedding"]]
    for run in runs:
        kinds = (run.hop_bytes, run.sum_bytes, run.embedding_bytes)
        cells = (f"{sum(kind) / steps:.0f}" if kind else "" for kind in kinds)
        rows.append([run.name, f"{_last(run):.4f}", f"{_last(run) / plain - 1:+.2%}", *cells])
    note = f"last loss: mean over the last {max(1, steps // _LAST)} steps; the others: bytes a step, of all processes"
    return "\n".join([*(f"{title:<16} {text}" for title, text in lines), table(rows), note, *_errors(runs)])


_OF_HOPS = {
    "share": "error", "error_mean": "mean of E", "change_mean": "of dY", "cosine": "cos(E, dY)",
    "errors_cosine": "cos(E, E')", "activations_cosine": "cos(Y, Y')", "off": "off", "inner": "inner", "end": "end",
}  # fmt: skip
"""What is said of hops, and in which words; of signed ones the mean of the absolute values."""


def _means(run: Trained) -> dict[str, float]:
    """Over all hops, micro-batches and steps that were looked at; empty where there were none."""
    if not run.gradient_errors:
        return {}
    found = {}
    for name in _OF_HOPS:
        values = [getattr(each, name) for each in run.errors]
        flat = [abs(x) for value in values for x in (value if isinstance(value, tuple) else (value,))]
        found[f"mean_{name}"] = fmean(flat) if flat else 0.0
    for name in ("error", "cosine"):
        found[f"gradient_{name}"] = fmean(getattr(each, name) for each in run.gradient_errors)
    return found


def _errors(runs: Sequence[Trained]) -> list[str]:
    """A line for each run that was looked at."""
    found = {run.name: _means(run) for run in runs}
    rows = [["", "gradient error", "cosine", *_OF_HOPS.values()]]
    for name, means in found.items():
        if means:
            columns = ["gradient_error", "gradient_cosine", *(f"mean_{each}" for each in _OF_HOPS)]
            rows.append([name, *(f"{means[column]:.3g}" for column in columns)])
    if len(rows) == 1:
        return []
    return [
        "", table(rows), "means over steps and hops. E: what a hop's compression adds to a gradient, dY: how its",
        "activation differs from the next micro-batch's; off: of a weight's gradient there, inner and end: parts of it",
        "with errors propagated (equation 12)",
    ]  # fmt: skip
