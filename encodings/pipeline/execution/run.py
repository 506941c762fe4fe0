"""A plan run by torch.distributed.pipelining on processes of this machine, beside one process: `gapless run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from gapless.encodings.pipeline.execution.copies import NO_COPIES, Copies, copies_of, kept_of
from gapless.encodings.pipeline.execution.emulation import compared_text, emulated
from gapless.encodings.pipeline.execution.times import Times, step_s, times_of
from gapless.encodings.pipeline.execution.training import trained
from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.encodings.pipeline.question import RunQuestion
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.ir.schedule import EventKind
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.system import Answer, Session
from gapless.units import format_count, format_seconds

if TYPE_CHECKING:
    from gapless.torch.pipeline.run import RanksRun, Task

__all__ = ["execute"]


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
    if plan.problem.get("steps", 1) != 1:
        raise InputError(f"{path}: problem: steps: a plan of several is exported and replayed, not run; leave them out")
    if question.ranks != program.order.ranks:
        raise InputError(f"ranks: {path} is a plan for {program.order.ranks} ranks, got {question.ranks}")
    if question.emulate != "none":
        _check_emulated(question)
        return emulated(question, session, program, plan.schedule)
    program.check_whole()
    if question.steps > 1:
        program.check_stays("a training", "leave out steps, or solve without --offload")
        return trained(question, session, program, asked, _task(question, session, program, layers))
    for name in ("optimizer", "learning_rate", "warm_up", "rules", "hop_mode", "sum_mode", "errors_every"):
        if getattr(question, name) != getattr(RunQuestion, name):
            raise InputError(f"{name}: goes with steps, two at least")
    if replicas > 1:
        session.say(f"sums among {replicas} replicas are left out: one replica runs; with --steps all do")
    return _run(question, session, plan, program, layers, report.spent)


def _check_emulated(question: RunQuestion) -> None:
    for name in ("model", "steps", "error_propagation"):
        if getattr(question, name) != getattr(RunQuestion, name):
            raise InputError(f"{name}: must be left out where computing is emulated, since nothing is computed")


def _task(question: RunQuestion, session: Session, program: Program, layers: int, copies: Copies = NO_COPIES) -> Task:
    """What ranks are to do. Raises `InputError` where there is no model, or one of other layers than the plan's."""
    from gapless.torch.pipeline.run import Task

    program.check_policies("torch", runs_layers=True)
    if question.model is None:
        raise InputError("model: must be given, unless computing is emulated")
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
        policies=program.policies,
        repeats=question.repeats if question.steps == 1 else 0,
        copies=copies.rows(program.order),
        offload_s_per_byte=copies.s_per_byte,
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

    copies = copies_of(plan.schedule, program.order, program.offloaded)
    task = _task(question, session, program, layers, copies)
    model = task.load()
    session.say(f"running {program.order.ranks} processes ...")
    found = run_ranks(program.order, task, session.options.stop)
    return _answer(plan, program, copies, found, model.boundary_bytes(program.cut, task.micro_batches), spent)


def _answer(
    plan: SavedPlan, program: Program, copies: Copies, found: RanksRun, boundary_bytes: tuple[int, ...],
    spent: tuple[float, ...],
) -> Answer:  # fmt: skip
    compressed, same_sizes = bool(program.hop_modes), boundary_bytes == program.boundary_bytes
    in_flight = found.in_flight == program.in_flight
    sent = found.sent_bytes == program.sent_bytes
    exact = found.equal == found.gradients
    ledger = {"hops": _spent_by_hops(plan), "all": sum(spent), "budget": plan.problem.get("error_budget", 0.0)}
    times = times_of(plan.schedule, program.order, copies)
    data = {
        **asdict(found),
        "compressed_hops": len(program.hop_modes),
        "planned_in_flight": list(program.in_flight),
        "planned_sent_bytes": list(program.sent_bytes),
        "same_boundaries": same_sizes,
        "ledger": ledger,
        "planned_kept_bytes": list(kept_of(plan.schedule, program.order).peak_bytes) if same_sizes else None,
        "planned_s": step_s(program.order, times, copies),
        "predicted_s": step_s(program.order, _played(times, program), copies) if same_sizes else None,
        "measured_s": median(found.step_s) if found.step_s else None,
    }
    is_valid = in_flight and (sent or not same_sizes) and (exact or compressed)
    return Answer(data, _text(program, found, same_sizes, data), is_valid=is_valid)


def _played(times: Times, program: Program) -> Times:
    """As the first stage is run: its backward is in two parts from its second layer on, if it has one."""
    return times.first_stage_whole() if program.cut[:1] == (1,) else times


def _spent_by_hops(plan: SavedPlan) -> float:
    """What the ledger has for gradients that are compressed between stages: sums among replicas don't run here."""
    schedule, spent = plan.schedule, 0.0
    for event in schedule.events():
        if event.kind is EventKind.COMPUTE and schedule.graph.ops[event.op].kind == "encode":
            implementation = schedule.graph.ops[event.op].implementations[event.implementation]
            spent += sum(amount for _, amount in implementation.spends)
    return spent


def _text(program: Program, found: RanksRun, same_sizes: bool, data: Mapping[str, Any]) -> str:
    order = program.order
    planned = "the replay's" if found.in_flight == program.in_flight else f"the replay has {_row(program.in_flight)}"
    if not same_sizes:
        sent = "the plan's profile is of another model, or of micro-batches of another size"
    else:
        sent = "the plan's" if found.sent_bytes == program.sent_bytes else f"the plan has {_row(program.sent_bytes)}"
    again = f", and for the stages that run again: {_row(program.recomputed)}" if program.recomputed else ""
    kept_bytes = data["planned_kept_bytes"]
    planned_bytes = f"; by the plan's profile {_row(kept_bytes)}" if kept_bytes else ""
    lines = [
        ("ran", f"{order.ranks} processes, {len(order.rank_of_stage)} stages, {order.micro_batches} micro-batches"),
        ("gradients", f"{found.equal} of {found.gradients} bit-equal to one process"),
        ("losses", f"{found.losses} of {order.micro_batches} bit-equal to one process"),
        ("in flight", f"{_row(found.in_flight)} at most, once a stage: {planned}"),
        ("kept bytes", f"{_row(found.kept_bytes)} at most, by autograd{again}{planned_bytes}"),
        ("sent bytes", f"{_row(found.sent_bytes)}: {sent}"),
    ]
    if program.offloaded:
        lines.append(("on hosts", f"what {len(program.offloaded)} forwards keep, in the meantime"))
    if found.step_s:
        lines.append(("step", _step(found, data["predicted_s"])))
    if program.hop_modes:
        ledger = data["ledger"]
        said = f"ledger {ledger['hops']:.3g} for hops, {ledger['all']:.3g} in all, budget {ledger['budget']:.3g}"
        lines += [
            ("compressed", f"{len(program.hop_modes)} hops: {', '.join(sorted(set(program.hop_modes.values())))}"),
            ("gradient error", f"{found.error:.3g} of the squared norm, measured; {said}"),
        ]
    return "\n".join(f"{title:<16} {text}" for title, text in lines)


def _step(found: RanksRun, predicted_s: float | None) -> str:
    """Of steps that were timed; nothing is predicted for another model."""
    if predicted_s is not None:
        return compared_text(predicted_s, found.step_s)
    return f"measured {format_seconds(median(found.step_s))} (median of {len(found.step_s)})"


def _row(numbers: tuple[int, ...]) -> str:
    return " ".join(map(format_count, numbers))
