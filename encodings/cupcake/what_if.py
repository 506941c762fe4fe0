"""What-ifs: tables of the analytic model of data-parallel training, with a compressor and without.

No search and no forward pass; gradients go in buckets of 25 MB.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless.encodings.cupcake.advice import network_data, pays
from gapless.io.record import check_known
from gapless.profiles.gradients import ddp_model as tables
from gapless.profiles.gradients.communication import Network, find_network
from gapless.profiles.gradients.compressors import Compressor, named_compressor
from gapless.profiles.gradients.ddp_model import DdpModel, Table
from gapless.profiles.gradients.named import find_fusion_profile
from gapless.profiles.gradients.profile import FusionProfile
from gapless.text import described, table
from gapless.units import format_bandwidth

__all__ = ["FIGURES", "WhatIf", "what_if"]

_BANDWIDTHS = tuple(gbps * 1e9 / 8 for gbps in (1, 2, 4, 6, 8, 10, 15, 20, 25, 30))
_BATCH_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_SPEEDS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
_TRADE_OFF_SPEEDS, _PENALTIES = (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0)
"""The axes of the figures of *Utility of gradient compression*, section 4.4."""

FIGURES: dict[str, Callable[[DdpModel, Compressor], Table]] = {
    "bandwidth": lambda model, compressor: tables.bandwidth_table(model, compressor, _BANDWIDTHS),
    "batch": lambda model, compressor: tables.batch_table(model, compressor, _BATCH_FACTORS),
    "compute": lambda model, compressor: tables.compute_table(model, compressor, _SPEEDS),
    "tradeoff": lambda model, compressor: tables.tradeoff_table(model, compressor, _TRADE_OFF_SPEEDS, _PENALTIES),
    "ratio": lambda model, _: tables.ratio_table(model, _BATCH_FACTORS, (model.network.bytes_per_s,)),
}
"""The table of each figure."""


@dataclass(frozen=True)
class WhatIf:
    """The table of one figure; and the bandwidth up to which the compressor pays, 0 for never, inf for always."""

    profile: str
    figure: str
    network: Network
    compressor: str
    rows: Table
    crossover_bytes_per_s: float

    @property
    def data(self) -> dict[str, Any]:
        """The answer in plain values; what isn't finite is None."""
        rows = [{key: value if math.isfinite(value) else None for key, value in row.items()} for row in self.rows]
        return {
            "problem": "cupcake", "profile": self.profile, "figure": self.figure, **network_data(self.network),
            "compressor": self.compressor, **pays(self.crossover_bytes_per_s), "rows": rows,
        }  # fmt: skip

    @property
    def text(self) -> str:
        """The table, and where compression pays."""
        titles = list(self.rows[0])
        words = [title.removesuffix("_bytes_per_s").removesuffix("_s").replace("_", " ") for title in titles]
        printed = table([words, *([_cell(title, row[title]) for title in titles] for row in self.rows)])
        if self.figure == "ratio":
            return printed
        limit = pays(self.crossover_bytes_per_s)
        if limit["pays"] == "below":
            return f"{printed}\n{self.compressor} pays below {format_bandwidth(self.crossover_bytes_per_s)}"
        return f"{printed}\n{self.compressor} {limit['pays']} pays"


def what_if(
    profile: str | Path | FusionProfile,
    *,
    figure: str,
    compressor: str | Compressor = "powersgd",
    **network: Any,
) -> WhatIf:
    """The table of a figure for a profile on a network, which is described as for `find_network`.

    Raises `InputError` that names an argument which is unknown, missing, or doesn't go with the others.
    """
    check_known("figure", figure, FIGURES)
    ring = find_network(**network)
    found, chosen = find_fusion_profile(profile), named_compressor(compressor)
    model = tables.ddp_model(found, ring)
    rows = FIGURES[figure](model, chosen)
    return WhatIf(found.name, figure, ring, chosen.name, rows, model.crossover_bytes_per_s(chosen))


def _cell(title: str, value: float) -> str:
    """A value in words, without the zeros behind the point."""
    if title == "time_saved":
        return f"{100 * value:.1f} %"
    text = described(title, value)
    return text.rstrip("0").rstrip(".") if "." in text and text[-1].isdigit() else text
