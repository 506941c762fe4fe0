"""Measured machines as plain values, for files and between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gapless.topologies.measured.machine import Asymmetry, LinkClass, MeasuredMachine
from gapless.topologies.measured.regression import Line
from gapless.topologies.measured.structure import Inside, Structure
from gapless.units import BYTES_PER_MB, S_PER_US

__all__ = ["class_rows", "machine_of", "record_of"]


def record_of(machine: MeasuredMachine) -> dict[str, Any]:
    """All of it, in values that JSON has."""
    return asdict(machine)


def machine_of(record: Mapping[str, Any]) -> MeasuredMachine:
    """What `record_of` was given."""
    structure = record["structure"]
    return MeasuredMachine(
        structure=Structure(
            nodes=_tuples(structure["nodes"]),
            nics=_tuples(structure["nics"]),
            inside=tuple(
                Inside(**{name: _tuples(value) for name, value in row.items()}) for row in structure["inside"]
            ),
            why_nodes=structure["why_nodes"],
        ),
        classes=tuple(
            LinkClass(row["name"], _tuples(row["pairs"]), Line(**row["line"])) for row in record["classes"]
        ),
        order=tuple(record["order"]),
        asymmetries=tuple(Asymmetry(**row) for row in record["asymmetries"]),
        experiments=record["experiments"],
        is_precise=record["is_precise"],
    )  # fmt: skip


def class_rows(machine: MeasuredMachine) -> list[dict[str, Any]]:
    """The classes' costs with their intervals, in the units of topology files."""
    per_mb = BYTES_PER_MB / S_PER_US
    return [
        {
            "name": each.name,
            "links": len(each.pairs),
            "alpha_us": _short(each.line.alpha_s / S_PER_US),
            "alpha_error_us": _short(each.line.alpha_error_s / S_PER_US),
            "beta_us_per_mb": _short(each.line.beta_s_per_byte * per_mb),
            "beta_error_us_per_mb": _short(each.line.beta_error_s_per_byte * per_mb),
            "spread": _short(each.line.spread),
            "samples": each.line.samples,
            "outliers": each.line.outliers,
        }
        for each in machine.classes
    ]


def _short(value: float) -> float | None:
    """To six digits; None for an interval that isn't known yet."""
    return float(f"{value:.6g}") if value < float("inf") else None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
