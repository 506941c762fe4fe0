"""Plans run under DistributedDataParallel on processes of this machine: `gapless run`, beside what people do without,
and `gapless validate`, predicted steps against measured ones over models and settings.

Needs the extra `torch`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from gapless.encodings.cupcake.commands.loss_curves import times_to_loss
from gapless.encodings.cupcake.commands.profiling import measure_model
from gapless.encodings.cupcake.decision import FusionDecision, to_ddp_buckets
from gapless.encodings.cupcake.problem import asked_profile
from gapless.encodings.cupcake.question import Measuring, Running, RunQuestion, ValidationQuestion
from gapless.encodings.cupcake.solve import best_fusion
from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import assigned_groups
from gapless.io.record import Record
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.profiles.gradients.communication import find_network
from gapless.profiles.gradients.fusion import Costs, Fusion, timeline
from gapless.profiles.gradients.modes import PLAIN
from gapless.profiles.gradients.profile import FusionProfile
from gapless.system import Answer, Session
from gapless.units import format_bandwidth, format_seconds

if TYPE_CHECKING:
    from gapless.torch.ddp.comparison import Measured, Strategy

__all__ = ["Row", "execute", "rival_fusions", "run_fusions", "validate"]

_DDP_CAPS_MIB = (1, 25)
"""Of DDP's first bucket and of all others, unless somebody sets them."""

_LATE = 0.05
"""A lag behind the emulated wire that is a larger share of a step is said."""

_ROUNDED = 1e-10
"""A squared relative distance below this is the rounding of single precision."""

_ALL, _EACH = "compress all", "compress each"
_IS_DEFAULT = ("DDP's default", _ALL)
"""Those for which DDP makes the buckets itself."""


@dataclass(frozen=True)
class Row:
    """A fusion that ran: what was predicted and measured of it."""

    fusion: Fusion
    predicted_s: float
    measured: Measured
    is_exact: bool
    has_nodes: bool = False

    @property
    def measured_s(self) -> float:
        """The median step."""
        return statistics.median(self.measured.steps_s)

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s

    @property
    def is_as_planned(self) -> bool:
        """Whether buckets are the fusion's, and gradients to the bit where every mode is exact; but for rounding in two
        levels, where sums come in another order.
        """
        found = self.measured
        is_equal = found.error < _ROUNDED if self.has_nodes else found.equal == found.gradients
        return found.buckets and (not self.is_exact or is_equal)

    @property
    def is_late(self) -> bool:
        """Whether sends fell behind the emulated wire by a share of the step that counts."""
        return self.measured.late_s > _LATE * self.predicted_s

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        low_s, high_s = middle_half(self.measured.steps_s)
        return {
            **asdict(self.measured),
            "groups": [list(group) for group in self.fusion.groups],
            "modes": list(self.fusion.modes),
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
            "middle_half_s": [low_s, high_s],
            "ratio": self.ratio,
            "is_exact": self.is_exact,
        }


def execute(question: RunQuestion, session: Session) -> Answer:
    """What ran, what it took, and whether buckets and gradients are the plan's."""
    path = question.plan
    plan, report = plan_to_run(path, "cupcake")
    if not report.valid:
        return not_run(report)
    profile = asked_profile(plan.problem, f"{path}: problem")
    to_ddp_buckets(plan, path)  # DDP must be able to make them
    fusion = FusionDecision.of(plan, path).fusion
    decode = Record(dict(plan.problem), f"{path}: problem").text("decode")
    costs = Costs.of(profile, None, decode)
    if question.loss is not None and not question.train:
        raise InputError("loss: goes with train, the number of steps to descend")
    fusions = {"plan": fusion, **rival_fusions(profile, fusion)}
    if question.train and _ALL in fusions:  # GRACE
        fusions[_EACH] = Fusion.uniform(range(1, profile.tensor_count + 1), fusions[_ALL].modes[0])
    rows = run_fusions(fusions, profile, costs, question, session, question)
    is_valid = all(row.is_as_planned for row in rows)
    measured = [row.measured for row in rows]
    reached = times_to_loss(measured, question.loss, question.batches) if question.train else None
    data = {
        "ranks": question.ranks,
        "emulated": question.emulate,
        "valid": is_valid,
        "rows": [row.data for row in rows],
        "time_to_loss": None if reached is None else asdict(reached),
    }
    text = _text(rows, question) if reached is None else f"{_text(rows, question)}\n{reached.text}"
    return Answer(data, text, notes=_notes(rows, question), is_valid=is_valid)


def rival_fusions(profile: FusionProfile, fusion: Fusion) -> dict[str, Fusion]:
    """What people do: DDP's own buckets, one bucket, one for each gradient; and DDP's buckets, all compressed in the
    mode in which the plan compresses most bytes, or the first that compresses.

    Without those that need `plain` where the profile doesn't say what that takes.
    """
    sizes, count = profile.size_bytes.tolist(), profile.tensor_count
    default = [last + 1 for _, last in assigned_groups(sizes, _DDP_CAPS_MIB)]
    found = {}
    if PLAIN in profile.mode_names:
        ends = {"DDP's default": default, "one bucket": [count], "layer-wise": range(1, count + 1)}
        found = {name: Fusion.uniform(list(each), PLAIN) for name, each in ends.items()}
    held = dict.fromkeys(profile.compressing, 0)
    for (first, last), mode in zip(fusion.groups, fusion.modes, strict=True):
        if mode in held:
            held[mode] += sum(sizes[first : last + 1])
    if held:
        found[_ALL] = Fusion.uniform(default, max(held, key=lambda mode: held[mode]))
    return found


def run_fusions(
    fusions: Mapping[str, Fusion],
    profile: FusionProfile,
    costs: Costs,
    running: Running,
    session: Session,
    training: RunQuestion | None = None,
    warm_up: int = 3,
) -> list[Row]:
    """Run fusions of a profile in turns. `training`: says how to descend with each afterwards, if at all.

    `warm_up`: steps before any counts, three at least.
    """
    from gapless.torch.ddp.comparison import RunTask, compare

    is_step, dilation = running.emulate == "step", running.dilation
    if is_step:  # what sleeps shares no core
        costs = replace(costs, cores=None)
    if dilation > 1 and not is_step:
        raise InputError("dilation: goes with emulate step, since what is real can't be slowed down")
    task = RunTask(
        model=running.model,
        profile=profile.name,
        seed=session.options.seed,
        parameter_names=profile.tensor_names,
        parameter_bytes=tuple(profile.size_bytes.tolist()),
        strategies=tuple(_strategy(name, fusion, costs, running) for name, fusion in fusions.items()),
        repeats=running.repeats,
        ranks=running.ranks,
        wait_s=running.wait,
        forward_s=dilation * profile.forward_s if is_step else None,
        gaps_s=tuple((dilation * profile.backward_s).tolist()) if is_step else (),
        **({} if training is None else _descent(training)),
        warm_up=warm_up,
        ranks_per_node=running.ranks_per_node,
    )
    session.say(f"running {len(fusions)} fusions in {running.ranks} processes ...")
    found = compare(task, session.options.stop)
    return [
        Row(
            fusion,
            costs.step_s(fusion),
            _undilated(measured, dilation),
            _is_exact(profile, fusion),
            running.ranks_per_node > 1,
        )
        for fusion, measured in zip(fusions.values(), found, strict=True)
    ]


def _descent(training: RunQuestion) -> dict[str, Any]:
    return {"train_steps": training.train, "learning_rate": training.rate, "batches": training.batches}


def _is_exact(profile: FusionProfile, fusion: Fusion) -> bool:
    return {profile.mode(mode).error for mode in fusion.modes} == {"exact"}


def _undilated(measured: Measured, dilation: float) -> Measured:
    steps_s, synced_s, train_s = (
        tuple(each_s / dilation for each_s in taken_s)
        for taken_s in (measured.steps_s, measured.synced_s, measured.train_s)
    )
    late_s = measured.late_s / dilation
    return replace(measured, steps_s=steps_s, synced_s=synced_s, train_s=train_s, late_s=late_s)


def _strategy(name: str, fusion: Fusion, costs: Costs, running: Running) -> Strategy:
    from gapless.torch.ddp.comparison import Strategy
    from gapless.torch.ddp.emulation import Sending

    times, dilation = timeline(costs, fusion), running.dilation
    is_step, is_wire = running.emulate == "step", running.emulate != "nothing"
    columns = ((times.compress_s, is_step), (times.send_s, is_wire), (times.decode_s, is_step))
    said = [(dilation * column).tolist() if is_said else [None] * len(column) for column, is_said in columns]
    sendings = tuple(Sending(*row) for row in zip(fusion.modes, *said, strict=True))
    return Strategy(name, fusion.groups, sendings, is_default=name in _IS_DEFAULT)


def middle_half(steps_s: Sequence[float]) -> tuple[float, float]:
    """Between which the middle half lies."""
    ordered = sorted(steps_s)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def _text(rows: Sequence[Row], running: Running) -> str:
    lines = [
        f"{'':<14} {'buckets':>7} {'predicted':>10} {'measured':>10} {'middle half':>21} {'ratio':>6}  gradients",
    ]
    for row in rows:
        low_s, high_s = middle_half(row.measured.steps_s)
        between = f"{format_seconds(low_s)} .. {format_seconds(high_s)}"
        lines.append(
            f"{row.measured.name:<14} {len(row.fusion.ends):>7} {format_seconds(row.predicted_s):>10} "
            f"{format_seconds(row.measured_s):>10} {between:>21} {row.ratio:>6.3f}  {_gradients(row.measured)}"
        )
    as_planned = [row.measured.name for row in rows if row.measured.buckets]
    named = "all of them" if len(as_planned) == len(rows) else ", ".join(as_planned) or "none"
    slower = f", {running.dilation:g} times as slow" if running.dilation > 1 else ""
    how = f"{running.ranks} processes; {_EMULATED[running.emulate]}{slower}"
    return "\n".join([*lines, f"buckets as planned: {named}", f"{running.repeats} steps of each in turns, {how}"])


_EMULATED = {
    "wire": "the wire is emulated, computation is real",
    "step": "wire and computation are emulated",
    "nothing": "nothing is emulated",
}


def _gradients(found: Measured) -> str:
    equal = f"{found.equal} of {found.gradients} bit-equal"
    if found.equal == found.gradients:
        return equal
    return f"{equal}; error {found.error:.2g}, of the mean of all steps {found.mean_error:.2g}"


def _notes(rows: Sequence[Row], running: Running) -> tuple[str, ...]:
    """Where buckets are others, and where the emulated wire isn't what was measured."""
    other = [
        f"{row.measured.name}: DDP's buckets are others; gradients become ready in another order than the plan's: "
        "measure the model again"
        for row in rows
        if not row.measured.buckets
    ]
    way_out = "take --emulate step with a --dilation, or a quieter machine"
    late = [row.measured for row in rows if row.is_late and running.emulate != "nothing"]
    behind = (f"sends were through {format_seconds(each.late_s)} after the emulated wire; {way_out}" for each in late)
    return (*other, *(f"{each.name}: {text}" for each, text in zip(late, behind, strict=True)))


@dataclass(frozen=True)
class _Case:
    """What ran of a model in one setting; the plan first."""

    model: str
    ranks: int
    bytes_per_s: float
    rows: Sequence[Row]

    @property
    def errors(self) -> list[float]:
        """By how much each measured step differs from the predicted one."""
        return [abs(row.ratio - 1) for row in self.rows]

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        setting = {"model": self.model, "ranks": self.ranks, "bandwidth_bytes_per_s": self.bytes_per_s}
        return {**setting, "errors": self.errors, "rows": [row.data for row in self.rows]}


def validate(question: ValidationQuestion, session: Session) -> Answer:
    """Measure, plan and run every model in every setting; errors of all predictions, the median and the worst."""
    cases = []
    for model, ranks in product(question.model, question.ranks):
        counts = question.repeats, question.wait
        measurement = measure_model(Measuring(model, ranks, question.hooks, question.steps, *counts), session)
        running = Running(model, ranks, question.emulate, question.dilation, *counts)
        for bytes_per_s in question.bandwidth:
            profile, _ = measurement.profile(find_network(ranks=ranks, bandwidth=bytes_per_s, latency=question.latency))
            if question.emulate == "step":
                profile = replace(profile, cores=None)
            costs = Costs.of(profile)
            fusion = best_fusion(profile, session.options).fusion
            rows = run_fusions({"plan": fusion, **rival_fusions(profile, fusion)}, profile, costs, running, session)
            cases.append(_Case(model, ranks, bytes_per_s, rows))
    errors = [error for case in cases for error in case.errors]
    is_valid = all(row.is_as_planned for case in cases for row in case.rows)
    data = {
        "emulated": question.emulate,
        "dilation": question.dilation,
        "median_error": statistics.median(errors),
        "worst_error": max(errors),
        "valid": is_valid,
        "cases": [case.data for case in cases],
    }
    return Answer(data, _validation_text(cases, errors, is_valid), is_valid=is_valid)


def _validation_text(cases: Sequence[_Case], errors: Sequence[float], is_valid: bool) -> str:
    width = max(len(case.model) for case in cases)
    lines = [
        f"{'model':<{width}} {'ranks':>5} {'wire':>9} {'plan, predicted':>15} {'measured':>9}  errors of all that ran"
    ]
    for case in cases:
        plan = case.rows[0]
        steps = f"{format_seconds(plan.predicted_s):>15} {format_seconds(plan.measured_s):>9}"
        own = " ".join(f"{error:.1%}" for error in case.errors)
        wire = format_bandwidth(case.bytes_per_s)
        lines.append(f"{case.model:<{width}} {case.ranks:>5} {wire:>9} {steps}  {own}")
    found = f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}, of {len(errors)} predictions"
    planned = "all buckets as planned, exact gradients exact" if is_valid else "buckets or exact gradients differ"
    late = sum(row.is_late for case in cases for row in case.rows)
    behind = [f"{late} of them with sends that fell behind the emulated wire, as on a busy machine"] if late else []
    return "\n".join([*lines, "; ".join([found, planned, *behind])])
