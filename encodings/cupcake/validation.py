"""Predicted steps of data-parallel training against measured ones, over models and settings: `gapless validate`.

Needs the extra `torch`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from gapless.encodings.cupcake.execution import Row, rival_fusions, run_fusions
from gapless.encodings.cupcake.profiling import measure_model
from gapless.encodings.cupcake.solve import best_fusion
from gapless.profiles.gradients.communication import find_network
from gapless.profiles.gradients.fusion import Costs
from gapless.system import Answer, Session
from gapless.units import format_bandwidth, format_seconds

__all__ = ["validate"]


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
    return Answer(data, _text(cases, data), is_valid=is_valid)


def _text(cases: Sequence[_Case], data: Mapping[str, Any]) -> str:
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
