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

from gapless.encodings.cupcake.commands.profiling import measure_model
from gapless.encodings.cupcake.decision import FusionDecision, to_ddp_buckets
from gapless.encodings.cupcake.problem import asked_profile
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
    from gapless.torch.ddp.comparison import Measured

__all__ = ["Row", "execute", "rival_fusions", "run_fusions", "validate"]

_DDP_CAPS_MIB = (1, 25)
"""Of DDP's first bucket and of all others, unless somebody sets them."""

_LATE = 0.05
"""A lag behind the emulated wire that is a larger share of a step is said."""

_IS_DEFAULT = ("DDP's default", "compress all")
"""Those for which DDP makes the buckets itself."""


@dataclass(frozen=True)
class Row:
    """A fusion that ran: what was predicted and measured of it."""

    fusion: Fusion
    predicted_s: float
    measured: Measured
    is_exact: bool

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
        """Whether buckets are the fusion's, and gradients to the bit where every mode is exact."""
        found = self.measured
        return found.buckets and (not self.is_exact or found.equal == found.gradients)

    @property
    def is_late(self) -> bool:
        """Whether sends fell behind the emulated wire by a share of the step that counts."""
        return self.measured.late_s > _LATE * self.predicted_s

    @property
    def data(self) -> dict[str, Any]:
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


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """What ran, what it took, and whether buckets and gradients are the plan's."""
    path = values["plan"]
    plan, report = plan_to_run(path, "cupcake")
    if not report.valid:
        return not_run(report)
    profile = asked_profile(plan.problem, f"{path}: problem")
    to_ddp_buckets(plan, path)  # DDP must be able to make them
    fusion = FusionDecision.of(plan, path).fusion
    decode = Record(dict(plan.problem), f"{path}: problem").text("decode")
    costs = Costs.of(profile, None, decode)
    rows = run_fusions({"plan": fusion, **rival_fusions(profile, fusion)}, profile, costs, values, session)
    is_valid = all(row.is_as_planned for row in rows)
    data = {
        "ranks": values["ranks"],
        "emulated": values["emulate"],
        "valid": is_valid,
        "rows": [row.data for row in rows],
    }
    return Answer(data, _text(rows, values), notes=_notes(rows, values), is_valid=is_valid)


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
        found["compress all"] = Fusion.uniform(default, max(held, key=lambda mode: held[mode]))
    return found


def run_fusions(
    fusions: Mapping[str, Fusion], profile: FusionProfile, costs: Costs, values: Mapping[str, Any], session: Session
) -> list[Row]:
    """Run fusions of a profile in turns. `values`: `model`, `ranks`, `repeats`, `emulate`, `dilation`, `wait`."""
    from gapless.torch.ddp.comparison import RunTask, compare

    is_step, dilation = values["emulate"] == "step", values["dilation"]
    if dilation > 1 and not is_step:
        raise InputError("dilation: goes with emulate step, since what is real can't be slowed down")
    task = RunTask(
        model=values["model"],
        profile=profile.name,
        seed=session.options.seed,
        parameter_names=profile.tensor_names,
        parameter_bytes=tuple(profile.size_bytes.tolist()),
        strategies=tuple(_strategy(name, fusion, costs, values) for name, fusion in fusions.items()),
        repeats=values["repeats"],
        ranks=values["ranks"],
        wait_s=values["wait"],
        forward_s=dilation * profile.forward_s if is_step else None,
        gaps_s=tuple((dilation * profile.backward_s).tolist()) if is_step else (),
    )
    session.say(f"running {len(fusions)} fusions in {values['ranks']} processes ...")
    found = compare(task, session.options.stop)
    return [
        Row(fusion, costs.step_s(fusion), _undilated(measured, dilation), _is_exact(profile, fusion))
        for fusion, measured in zip(fusions.values(), found, strict=True)
    ]


def _is_exact(profile: FusionProfile, fusion: Fusion) -> bool:
    return {profile.mode(mode).error for mode in fusion.modes} == {"exact"}


def _undilated(measured: Measured, dilation: float) -> Measured:
    steps_s = tuple(step_s / dilation for step_s in measured.steps_s)
    return replace(measured, steps_s=steps_s, late_s=measured.late_s / dilation)


def _strategy(name: str, fusion: Fusion, costs: Costs, values: Mapping[str, Any]) -> Any:
    from gapless.torch.ddp.comparison import Strategy
    from gapless.torch.ddp.emulation import Sending

    times, dilation = timeline(costs, fusion), values["dilation"]
    is_step, is_wire = values["emulate"] == "step", values["emulate"] != "nothing"
    columns = ((times.compress_s, is_step), (times.send_s, is_wire), (times.decode_s, is_step))
    said = [(dilation * column).tolist() if is_said else [None] * len(column) for column, is_said in columns]
    sendings = tuple(Sending(*row) for row in zip(fusion.modes, *said, strict=True))
    return Strategy(name, fusion.groups, sendings, is_default=name in _IS_DEFAULT)


def middle_half(steps_s: Sequence[float]) -> tuple[float, float]:
    """Between which the middle half lies."""
    ordered = sorted(steps_s)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def _text(rows: Sequence[Row], values: Mapping[str, Any]) -> str:
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
    slower = f", {values['dilation']:g} times as slow" if values["dilation"] > 1 else ""
    how = f"{values['ranks']} processes; {_EMULATED[values['emulate']]}{slower}"
    return "\n".join([*lines, f"buckets as planned: {named}", f"{values['repeats']} steps of each in turns, {how}"])


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


def _notes(rows: Sequence[Row], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Where buckets are others, and where the emulated wire isn't what was measured."""
    other = [
        f"{row.measured.name}: DDP's buckets are others; gradients become ready in another order than the plan's: "
        "measure the model again"
        for row in rows
        if not row.measured.buckets
    ]
    way_out = "take --emulate step with a --dilation, or a quieter machine"
    late = [row.measured for row in rows if row.is_late and values["emulate"] != "nothing"]
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
    def data(self) -> dict[str, Any]:
        """In plain values."""
        setting = {"model": self.model, "ranks": self.ranks, "bandwidth_bytes_per_s": self.bytes_per_s}
        return {**setting, "errors": self.errors, "rows": [row.data for row in self.rows]}


def validate(values: Mapping[str, Any], session: Session) -> Answer:
    """Measure, plan and run every model in every setting; errors of all predictions, the median and the worst."""
    cases = []
    for model, ranks in product(values["model"], values["ranks"]):
        setting = {**values, "model": model, "ranks": ranks}
        measurement = measure_model(setting, session)
        for bytes_per_s in values["bandwidth"]:
            profile, _ = measurement.profile(
                find_network(ranks=ranks, bandwidth=bytes_per_s, latency=values["latency"])
            )
            costs = Costs.of(profile)
            fusion = best_fusion(profile, session.options).fusion
            rows = run_fusions({"plan": fusion, **rival_fusions(profile, fusion)}, profile, costs, setting, session)
            cases.append(_Case(model, ranks, bytes_per_s, rows))
    errors = [error for case in cases for error in case.errors]
    is_valid = all(row.is_as_planned for case in cases for row in case.rows)
    data = {
        "emulated": values["emulate"],
        "dilation": values["dilation"],
        "median_error": statistics.median(errors),
        "worst_error": max(errors),
        "valid": is_valid,
        "cases": [case.data for case in cases],
    }
    return Answer(data, _validation_text(cases, data), is_valid=is_valid)


def _validation_text(cases: Sequence[_Case], data: Mapping[str, Any]) -> str:
    width = max(len(case.model) for case in cases)
    lines = [
        f"{'model':<{width}} {'ranks':>5} {'wire':>9} {'plan, predicted':>15} {'measured':>9}  errors of all that ran"
    ]
    for case in cases:
        plan = case.rows[0]
        steps = f"{format_seconds(plan.predicted_s):>15} {format_seconds(plan.measured_s):>9}"
        errors = " ".join(f"{error:.1%}" for error in case.errors)
        wire = format_bandwidth(case.bytes_per_s)
        lines.append(f"{case.model:<{width}} {case.ranks:>5} {wire:>9} {steps}  {errors}")
    count = sum(len(case.rows) for case in cases)
    found = f"median error {data['median_error']:.1%}, worst {data['worst_error']:.1%}, of {count} predictions"
    planned = "all buckets as planned, exact gradients exact" if data["valid"] else "buckets or exact gradients differ"
    late = sum(row.is_late for case in cases for row in case.rows)
    behind = [f"{late} of them with sends that fell behind the emulated wire, as on a busy machine"] if late else []
    return "\n".join([*lines, "; ".join([found, planned, *behind])])
