"""`gapless run sharding`: a model's step by planned layouts in processes, beside one process.

Needs the extra `torch`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.encodings.sharding.decision import ShardingDecision
from gapless.encodings.sharding.execution.question import RunQuestion
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.gradients.network_question import LATENCY_S
from gapless.profiles.layouts.costs import MeshCosts
from gapless.profiles.layouts.layouts import MeshLayouts
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.torch.sharding.execution.ranks import RankFound

__all__ = ["execute", "found_data"]

_HEADER_BYTES = 512
"""At most, for each rank of an axis: what gloo sends beside the payload of one collective."""
_BARRIER_BYTES = 256
"""At most, for each of a barrier's rounds: what gloo sends in the two barriers around the step that is counted."""


def execute(question: RunQuestion, session: Session) -> Answer:
    """Losses, gradients, bytes, memory and time of the plan's steps."""
    plan, report = plan_to_run(question.plan, "sharding")
    if not report.valid:
        return not_run(report)
    from gapless.torch.sharding.execution.ranks import Task, run_sharded

    decision = ShardingDecision.of(plan, question.plan)
    layouts, costs = decision.layouts, decision.costs
    if layouts is None or costs is None:
        rule = "run takes the plan of a model, got one of an instance, whose nodes nobody can run"
        raise InputError(f"{question.plan}: {rule}; solve with --model")
    if question.processes not in (None, layouts.device_count):
        rule = f"must be those of the plan's mesh, {layouts.device_count}"
        raise InputError(f"processes: {rule}, got {question.processes}; plan for another mesh")
    model, wire = _model(plan, question), _wire(question, costs)
    task = Task(
        model=model, seed=session.options.seed, layouts=layouts, costs=costs, steps=question.steps,
        repeats=question.repeats, wire=wire, wait_s=question.wait,
    )  # fmt: skip
    session.say(f"running {layouts.device_count} processes ...")
    found = run_sharded(task, session.options.stop, session.ranks)
    data = found_data(question, layouts, found, max(report.peak_bytes))
    return Answer(data, _text(data), is_valid=bool(data["valid"]))


def _model(plan: SavedPlan, question: RunQuestion) -> str:
    """The model by its name. Raises `InputError` where nobody says which it is."""
    asked = plan.run.get("question")
    fields = asked.get("fields") if isinstance(asked, Mapping) else None
    named = question.model or (fields.get("model") if isinstance(fields, Mapping) else None)
    if not isinstance(named, str):
        raise InputError(f"{question.plan}: names no model that could be loaded; give model")
    return named


def _wire(question: RunQuestion, costs: MeshCosts) -> MeshCosts | None:
    """The wire between processes, None where nothing is said of it."""
    if question.bandwidth is None:
        if question.latency is not None:
            raise InputError("latency: is of the wire; give bandwidth too")
        return None
    axes = len(costs.shape)
    if len(question.bandwidth) not in (1, axes):
        raise InputError(f"bandwidth: must be one, or one for each of {axes} axes, got {len(question.bandwidth)}")
    bandwidths = list(question.bandwidth) * (axes if len(question.bandwidth) == 1 else 1)
    alpha_s = LATENCY_S if question.latency is None else question.latency
    networks = zip(costs.shape, bandwidths, strict=True)
    return replace(costs, networks=tuple(FlatNetwork(ranks, each, alpha_s) for ranks, each in networks))


def found_data(
    question: RunQuestion, layouts: MeshLayouts, found: Sequence[RankFound], planned_peak_bytes: int
) -> dict[str, Any]:
    """What ranks found, as the answer has it; `checks`: what was compared, and whether it is as it should be."""
    worst = max(found, key=lambda rank: rank.error)
    pairs = [pair for rank in found for pair in zip(rank.losses, rank.expected_losses, strict=True)]
    errors = [abs(got - expected) / max(abs(expected), 1e-30) for got, expected in pairs]
    loss_error = max(error if math.isfinite(error) else math.inf for error in errors)
    planned, sent = found[0].planned_bytes, [sum(size for *_, size in rank.sent_bytes) for rank in found]
    counted = [rank.socket_bytes for rank in found if rank.socket_bytes >= 0]
    total = sum(size for *_, size in planned)
    rounds = (layouts.device_count - 1).bit_length()
    headers = _HEADER_BYTES * found[0].messages * max(layouts.mesh) + _BARRIER_BYTES * rounds
    checks = {
        "losses": loss_error <= question.tolerance,
        "gradients": worst.error <= question.tolerance,
        "sent": all(rank.sent_bytes == planned for rank in found),
        "counted": all(total <= each <= total + headers for each in counted),
    }
    alone_s, wire_s = max(rank.alone_s for rank in found), found[0].predicted_wire_s
    step_s = [max(times) for times in zip(*(rank.step_s for rank in found), strict=True)]
    return {
        "processes": len(found), "mesh": list(layouts.mesh), "losses": list(found[0].losses),
        "expected_losses": list(found[0].expected_losses), "loss_error": loss_error, "error": worst.error,
        "furthest": worst.furthest, "planned_bytes": [list(row) for row in planned], "sent_bytes": sent,
        "socket_bytes": counted, "collectives": found[0].messages, "planned_peak_bytes": planned_peak_bytes,
        "peak_bytes": [rank.given_bytes + rank.state_bytes + rank.step_bytes for rank in found],
        "alone_peak_bytes": [rank.given_bytes + rank.state_bytes + rank.alone_bytes for rank in found],
        "given_bytes": [rank.given_bytes for rank in found], "state_bytes": [rank.state_bytes for rank in found],
        "alone_s": alone_s, "planned_wire_s": found[0].planned_wire_s,
        "predicted_s": None if wire_s is None else alone_s + wire_s,
        "measured_s": statistics.median(step_s), "times_s": step_s, "checks": checks, "valid": all(checks.values()),
    }  # fmt: skip


def _text(data: Mapping[str, Any]) -> str:
    checks, losses = data["checks"], data["losses"]
    total = sum(size for *_, size in data["planned_bytes"])
    kinds = [f"{format_bytes(size)} by {kind} on axis {axis}" for kind, axis, size in data["planned_bytes"]]
    off = f"{data['error']:.1g} of its norm off: {data['furthest']}" if data["furthest"] else "the same bits"
    needed, own = _range(data["alone_peak_bytes"]), _range(data["peak_bytes"])
    lines = [
        ("losses", f"{losses[0]:.6f} to {losses[-1]:.6f} in {len(losses)} steps, {_as(checks['losses'])} one process"),
        ("gradients", f"{_as(checks['gradients'])} one process, the furthest {off}"),
        ("sent", f"{format_bytes(total)} a step by each process, {_as(checks['sent'])} planned"),
        *(("", kind.replace("_", "-")) for kind in kinds),
        *_counted(data, total),
        ("memory", f"{format_bytes(data['planned_peak_bytes'])} planned; {needed}, with gloo's own buffers {own}"),
        *_times(data),
    ]
    return "\n".join(f"{title:<10} {text}" for title, text in lines)


def _as(is_well: bool) -> str:
    return "as" if is_well else "OTHER THAN"


def _range(sizes: Sequence[int]) -> str:
    least, most = format_bytes(min(sizes)), format_bytes(max(sizes))
    return least if least == most else f"{least} to {most}"


def _counted(data: Mapping[str, Any], total: int) -> list[tuple[str, str]]:
    if not data["socket_bytes"]:
        return []
    most, count = max(data["socket_bytes"]), data["collectives"]
    beside = f"headers of {count} collectives and two barriers among them"
    text = f"{format_bytes(most)} by the kernel's count of TCP, {beside}"
    return [("", text if data["checks"]["counted"] else f"{text}: OTHER THAN the {format_bytes(total)} sent")]


def _times(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    alone = f"{format_seconds(data['alone_s'])} of processor time without collectives"
    lines = [("step", f"{format_seconds(data['measured_s'])} measured, median of {len(data['times_s'])}; {alone}")]
    if data["predicted_s"] is not None:
        lines.append(("", f"{format_seconds(data['predicted_s'])} predicted: this and the wire"))
    wire = format_seconds(data["planned_wire_s"])
    return [*lines, ("", f"collectives take {wire} on the machine that was planned for")]
