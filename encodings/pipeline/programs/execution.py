"""A plan run by torch.distributed.pipelining on processes of this machine, beside one process: `gapless run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.encodings.pipeline.programs.training import trained
from gapless.encodings.pipeline.question import ErrorsQuestion, LayersQuestion, RunQuestion
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.ir.schedule import EventKind
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.profiles.pipelines.compression import CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.torch.pipeline.run import RanksRun, Task

__all__ = ["execute", "profile_errors", "profile_layers"]


def execute(question: RunQuestion, session: Session) -> Answer:
    """What ran, and whether it is what the replay and one process say. Needs the extra `torch`."""
    path = question.plan
    plan, report = plan_to_run(path, "pipeline")
    if not report.valid:
        return not_run(report)
    try:
        program = program_of(plan)
        asked = Record(dict(plan.problem), "problem")
        layers, replicas = asked.integer("layers", 1), asked.integer("replicas", 1)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if question.ranks != program.order.ranks:
        raise InputError(f"ranks: {path} is a plan for {program.order.ranks} ranks, got {question.ranks}")
    if question.steps > 1:
        return trained(question, session, program, asked, _task(question, session, program, layers))
    for name in ("optimizer", "learning_rate", "warm_up", "rules", "hop_mode", "sum_mode", "errors_every"):
        if getattr(question, name) != getattr(RunQuestion, name):
            raise InputError(f"{name}: goes with steps, two at least")
    if replicas > 1:
        session.say(f"sums among {replicas} replicas are left out: one replica runs; with --steps all do")
    return _run(question, session, plan, program, layers, report.spent)


def _task(question: RunQuestion, session: Session, program: Program, layers: int) -> Task:
    """What ranks are to do. Raises `InputError` where the model has other layers than the plan."""
    from gapless.torch.pipeline.run import Task

    task = Task(
        model=question.model,
        defaults={"layers": max(layers - 2, 1)},
        seed=session.options.seed,
        cut=program.cut,
        rank_of_stage=program.order.rank_of_stage,
        micro_batches=program.order.micro_batches,
        hop_modes=tuple((hop, m, mode) for (hop, m), mode in sorted(program.hop_modes.items())),
        propagates=question.error_propagation,
        form=question.form,
        wait_s=question.wait,
        recomputed=program.recomputed,
    )
    count = len(task.load().layers)
    if count != layers:
        rule = f"the plan is for {layers} layers, {task.model} has {count}"
        raise InputError(f"model: {rule}; give a model of as many, or solve with its profile")
    return task


def _run(
    question: RunQuestion, session: Session, plan: SavedPlan, program: Program, layers: int,
    spent: tuple[float, ...],
) -> Answer:  # fmt: skip
    from gapless.torch.pipeline.run import run_ranks

    task = _task(question, session, program, layers)
    model = task.load()
    session.say(f"running {program.order.ranks} processes ...")
    found = run_ranks(program.order, task, session.options.stop)
    return _answer(plan, program, found, model.boundary_bytes(program.cut, task.micro_batches), spent)


def _answer(
    plan: SavedPlan, program: Program, found: RanksRun, boundary_bytes: tuple[int, ...], spent: tuple[float, ...]
) -> Answer:
    compressed, same_sizes = bool(program.hop_modes), boundary_bytes == program.boundary_bytes
    in_flight = found.in_flight == program.in_flight
    sent = found.sent_bytes == program.sent_bytes
    exact = found.equal == found.gradients
    ledger = {"hops": _spent_by_hops(plan), "all": sum(spent), "budget": plan.problem.get("error_budget", 0.0)}
    data = {
        **asdict(found),
        "compressed_hops": len(program.hop_modes),
        "planned_in_flight": list(program.in_flight),
        "planned_sent_bytes": list(program.sent_bytes),
        "same_boundaries": same_sizes,
        "ledger": ledger,
    }
    is_valid = in_flight and (sent or not same_sizes) and (exact or compressed)
    return Answer(data, _text(program, found, same_sizes, ledger), is_valid=is_valid)


def _spent_by_hops(plan: SavedPlan) -> float:
    """What the ledger has for gradients that are compressed between stages: sums among replicas don't run here."""
    schedule, spent = plan.schedule, 0.0
    for event in schedule.events():
        if event.kind is EventKind.COMPUTE and schedule.graph.ops[event.op].kind == "encode":
            implementation = schedule.graph.ops[event.op].implementations[event.implementation]
            spent += sum(amount for _, amount in implementation.spends)
    return spent


def _text(program: Program, found: RanksRun, same_sizes: bool, ledger: Mapping[str, float]) -> str:
    order = program.order
    planned = "the replay's" if found.in_flight == program.in_flight else f"the replay has {_row(program.in_flight)}"
    if not same_sizes:
        sent = "the plan's profile is of another model, or of micro-batches of another size"
    else:
        sent = "the plan's" if found.sent_bytes == program.sent_bytes else f"the plan has {_row(program.sent_bytes)}"
    again = f", and for the stages that run again: {_row(program.recomputed)}" if program.recomputed else ""
    lines = [
        ("ran", f"{order.ranks} processes, {len(order.rank_of_stage)} stages, {order.micro_batches} micro-batches"),
        ("gradients", f"{found.equal} of {found.gradients} bit-equal to one process"),
        ("losses", f"{found.losses} of {order.micro_batches} bit-equal to one process"),
        ("in flight", f"{_row(found.in_flight)} at most, once a stage: {planned}"),
        ("kept bytes", f"{_row(found.kept_bytes)} at most, by autograd{again}"),
        ("sent bytes", f"{_row(found.sent_bytes)}: {sent}"),
    ]
    if program.hop_modes:
        said = f"ledger {ledger['hops']:.3g} for hops, {ledger['all']:.3g} in all, budget {ledger['budget']:.3g}"
        lines += [
            ("compressed", f"{len(program.hop_modes)} hops: {', '.join(sorted(set(program.hop_modes.values())))}"),
            ("gradient error", f"{found.error:.3g} of the squared norm, measured; {said}"),
        ]
    return "\n".join(f"{title:<16} {text}" for title, text in lines)


def _row(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def profile_layers(question: LayersQuestion, session: Session) -> Answer:
    """Measure the layers of a model, and write their profile."""
    from gapless.profiles.pipelines.profile import write_pipeline_profile
    from gapless.torch.pipeline.layers import load_layers
    from gapless.torch.pipeline.measuring import measure_layers

    check_writable(question.output)
    model = load_layers(question.model, question.micro_batches, session.options.seed)
    found = measure_layers(
        model, question.micro_batches, question.repeats, question.optimizer_ratio, session.say
    )  # fmt: skip
    write_pipeline_profile(question.output, found)
    rows = [{"name": name, **dict(zip(_TITLES, cells, strict=True))} for name, cells in _cells(found)]
    data = {"profile": found.name, "source": found.source, "layers": rows, "output": question.output}
    return Answer(data, _table(found))


_TITLES = (
    "forward_s", "backward_s", "weight_s", "parameter_bytes", "stash_bytes", "deferred_bytes", "boundary_bytes",
)  # fmt: skip


def _cells(profile: PipelineProfile) -> Iterator[tuple[str, list[float]]]:
    """Of each layer its name, and what `_TITLES` says."""
    columns = (getattr(profile, title).tolist() for title in _TITLES)
    yield from ((name, list(row)) for name, *row in zip(profile.layer_names, *columns, strict=True))


def _table(profile: PipelineProfile) -> str:
    lines: list[tuple[str, ...]] = [("layer", "F", "I", "W", "parameters", "stash", "from I to W", "boundary")]
    for name, cells in _cells(profile):
        lines.append((name, *map(format_seconds, cells[:3]), *map(format_bytes, cells[3:])))
    return _aligned(lines, profile.source)


def profile_errors(question: ErrorsQuestion, session: Session) -> Answer:
    """Measure what compressors spoil on a model's batch, and write the table."""
    from gapless.profiles.pipelines.compression import write_compression_table
    from gapless.torch.pipeline.layers import load_layers
    from gapless.torch.pipeline.measuring import measure_errors

    check_writable(question.output)
    model = load_layers(question.model, question.micro_batches, session.options.seed)
    found = measure_errors(
        model, question.micro_batches, question.modes, question.depths, question.repeats, session.say
    )  # fmt: skip
    write_compression_table(question.output, found)
    data = {"table": found.name, "source": found.source, "modes": [mode.name for mode in found.modes],
            "output": question.output}  # fmt: skip
    return Answer(data, _modes(found))


def _modes(table: CompressionTable) -> str:
    lines: list[tuple[str, ...]] = [("mode", "sent", "hop error", "sum error", "encode", "decode")]
    for mode in table.modes:
        hop, reduce = ((float(column.min()), float(column.max())) for column in (mode.hop_error, mode.reduce_error))
        costs = (f"{1e9 * seconds:.3g} ns/B" for seconds in (mode.encode_s_per_byte, mode.decode_s_per_byte))
        ranges = (f"{low:.2g} .. {high:.2g}" for low, high in (hop, reduce))
        lines.append((mode.name, f"{mode.ratio:.1%}", *ranges, *costs))
    return _aligned(lines, table.source)


def _aligned(lines: list[tuple[str, ...]], source: str) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["  ".join(cell.rjust(width) if k else cell.ljust(width) for k, (cell, width) in
                      enumerate(zip(line, widths, strict=True))) for line in lines]  # fmt: skip
    return "\n".join([*rows, source])
