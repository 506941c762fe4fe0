"""What-ifs: tables of the analytic model of data-parallel training, with a compressor and without.

No search and no forward pass. Every figure has axes of its own, with the values of *Utility of gradient compression*
where none are given; every other axis that has several values is another column, and another curve in the picture.

A crossover depends on what is known least: it comes with the range over latencies of a tenth to ten times the one
given, and over the slow-downs that the study has seen, gamma from 1.04 to 1.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from gapless.encodings.cupcake.commands.advice import LATENCIES, network_data
from gapless.encodings.cupcake.commands.compared import PaysInRange, limit_words, pays
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.profiles.compressors.compressor import Compressor
from gapless.profiles.compressors.grammar import named_compressor
from gapless.profiles.gradients.communication import Network, aggregation_names, find_network
from gapless.profiles.gradients.ddp_model import DdpModel, ddp_model
from gapless.profiles.gradients.named import find_fusion_profile
from gapless.profiles.gradients.network_question import DECODED, TOGETHER
from gapless.profiles.gradients.profile import FusionProfile
from gapless.question.fields import Share
from gapless.report.short_repr import BriefText
from gapless.report.text import described, table, words

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gapless.profiles.gradients.communication import OuterChanges
    from gapless.topologies.topology import Topology

__all__ = ["AXES", "FIGURES", "Case", "Figure", "WhatIf", "what_if"]

_GBPS = 1e9 / 8
_GAMMAS = (1.04, 1.1)
"""What the study has seen."""
_RANGE_PRECISION = 1e-4
_LARGEST_RATIO = 1e9
_MOST_ROWS = 500
_NODES = (1, 2, 4, 8, 16)

Value = int | float | str | Share
"""Where an axis may be."""


class _ModelChanges(TypedDict, total=False):
    network: Network
    bucket_bytes: float
    slowdown: float
    speed: float
    contention: float


@dataclass(frozen=True)
class Case:
    """One setting of the model, and the compressor in it. `batch`: examples a rank, 0 where that isn't known.
    `decoded`: one of `DECODED`.
    """

    model: DdpModel
    compressor: Compressor
    batch: int = 0
    decoded: str = TOGETHER

    def model_with(self, **changes: Unpack[_ModelChanges]) -> Case:
        """The same case with other values of the model."""
        return replace(self, model=replace(self.model, **changes))

    def network_with(self, **changes: Unpack[OuterChanges]) -> Case:
        """The same case with other values of the network, between nodes where it has two levels."""
        return self.model_with(network=self.model.network.with_outer(**changes))

    def at_batch(self, batch: int | Share) -> Case:
        """The same case with another batch, and a backward pass in proportion."""
        if not isinstance(batch, Share) and not self.batch:
            raise InputError(f"batch: the profile doesn't say its own, so give shares of it such as 0.5x, got {batch}")
        factor = batch.ratio if isinstance(batch, Share) else batch / self.batch
        return replace(self, model=self.model.at_batch(factor))

    def at_encode_speed(self, factor: float) -> Case:
        """Encode and decode so many times as fast, at as many times the bytes, but never more than the raw gradient."""
        other = self.model_with(speed=factor * self.model.speed)
        return replace(other, compressor=_at_ratio(self.compressor, self.compressor.ratio / factor))

    def at_penalty(self, penalty: float) -> Case:
        """So many times the bytes."""
        return replace(self, compressor=_at_ratio(self.compressor, self.compressor.ratio / penalty))


def _at_ratio(compressor: Compressor, ratio: float) -> Compressor:
    return replace(compressor, ratio=max(1.0, ratio))


@dataclass(frozen=True)
class Axis:
    """What may vary. `column`: its name in a table, with the unit. `values`: where none are given. `at`: sets one."""

    column: str
    values: Callable[[], Sequence[Value]]
    at: Callable[[Case, Any], Case]


AXES: dict[str, Axis] = {
    "ranks": Axis(
        "ranks", lambda: (4, 8, 16, 32, 64, 96),
        lambda case, ranks: case.model_with(network=case.model.network.at_ranks(ranks)),
    ),
    "bandwidth": Axis(
        "bandwidth_bytes_per_s", lambda: [gbps * _GBPS for gbps in (1, 2, 4, 6, 8, 10, 15, 20, 25, 30)],
        lambda case, bandwidth: case.network_with(bytes_per_s=bandwidth),
    ),
    "latency": Axis(
        "latency_s", lambda: (1e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3),
        lambda case, latency_s: case.network_with(alpha_s=latency_s),
    ),
    "aggregation": Axis("aggregation", aggregation_names, lambda case, name: case.network_with(aggregation=name)),
    "batch": Axis("batch", lambda: [Share(factor) for factor in (0.25, 0.5, 1, 2, 4)], Case.at_batch),
    "gamma": Axis(
        "gamma", lambda: (_GAMMAS[0], 1.07, _GAMMAS[1]), lambda case, gamma: case.model_with(slowdown=gamma)
    ),
    "bucket": Axis(
        "bucket_bytes", lambda: [10**6 * size for size in (1, 5, 10, 25, 50, 100)],
        lambda case, size_bytes: case.model_with(bucket_bytes=size_bytes),
    ),
    "speed": Axis(
        "speed", lambda: (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
        lambda case, factor: replace(case, model=case.model.at_speed(factor)),
    ),
    "backward_speed": Axis(
        "backward_speed", lambda: (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
        lambda case, factor: replace(case, model=case.model.at_backward_speed(factor)),
    ),
    "encode_speed": Axis("encode_speed", lambda: (1.0, 2.0, 3.0, 4.0), Case.at_encode_speed),
    "penalty": Axis("penalty", lambda: (1.0, 2.0, 3.0), Case.at_penalty),
    "contention": Axis(
        "contention", lambda: (1.0, 1.02, 1.05, 1.1, 1.2), lambda case, factor: case.model_with(contention=factor)
    ),
}  # fmt: skip
"""By the option that sets it."""


def _step(case: Case) -> dict[str, float]:
    before_s, after_s = case.model.uncompressed_s(), case.model.compressed_s(case.compressor)
    return {"uncompressed_s": before_s, "compressed_s": after_s, "time_saved": 1 - after_s / before_s}


def _ratio(case: Case) -> dict[str, float]:
    """The ratio that is enough for close to linear scaling, at no cost to compress.

    `scaling`: the backward pass alone over the step at that ratio. The slow-down and the last bucket keep it below 1.
    Where latency alone is too long, the ratio is inf, and `scaling` that of next to nothing sent.
    """
    ratio = case.model.required_ratio()
    smaller = case.model.at_ratio(min(ratio, _LARGEST_RATIO))
    return {"required_ratio": ratio, "scaling": case.model.backward_s / smaller.uncompressed_s()}


def _overlap(case: Case) -> dict[str, float]:
    """Synchronous SGD that sends nothing before the backward pass is through, and what sending beside it saves."""
    serial_s, beside_s = case.model.serial_s(), case.model.uncompressed_s()
    return {"serial_s": serial_s, "uncompressed_s": beside_s, "time_saved": 1 - beside_s / serial_s}


def _buffers(case: Case) -> dict[str, float]:
    model, compressor = case.model, case.compressor
    buffers = model.buffer_bytes(compressor, case.decoded)
    return {"gathered_bytes": model.gathered_bytes(compressor), "buffer_bytes": buffers}


@dataclass(frozen=True)
class Figure:
    """`axes`: the first is along the picture. `measures`: columns of a row. `shown`: the two that a picture draws."""

    axes: tuple[str, ...]
    what: str
    measures: tuple[Callable[[Case], dict[str, float]], ...] = (_step,)
    shown: tuple[str, ...] = ("uncompressed_s", "compressed_s")
    has_crossover: bool = True


FIGURES: dict[str, Figure] = {
    "bandwidth": Figure(("bandwidth",), "4.10 and 4.12"),
    "batch": Figure(("batch",), "4.7"),
    "compute": Figure(("speed",), "4.13"),
    "tradeoff": Figure(
        ("encode_speed", "penalty"), "4.14", (lambda case: {"ratio": case.compressor.ratio}, _step), ("compressed_s",)
    ),
    "ratio": Figure(("batch",), "4.8 and 4.11", (_ratio,), ("required_ratio",), has_crossover=False),
    "ranks": Figure(("ranks",), "4.4 to 4.6", (_step, _buffers)),
    "overlap": Figure(("ranks",), "4.2", (_overlap,), ("serial_s", "uncompressed_s"), has_crossover=False),
    "aggregation": Figure(("ranks", "aggregation"), "Table 4.2"),
    "contention": Figure(
        ("contention",), "4.3", (_step, lambda case: {"beside_s": case.model.beside_s(case.compressor)}),
        ("uncompressed_s", "compressed_s", "beside_s"),
    ),
    "latency": Figure(("latency",), "equation 4.1"),
    "gamma": Figure(("gamma",), "section 4.2.4"),
    "bucket": Figure(("bucket",), "section 4.1.1"),
}  # fmt: skip
"""By name, with what shows it in the study."""


@dataclass(frozen=True, repr=False)
class WhatIf(BriefText):
    """The table of one figure.

    `refused`: in which settings the compressor's buffers don't fit in memory, in words. `batch`: of all rows, else of
    the profile; 0 where it isn't said. `axes`: the columns that vary, the first is along
    the picture. A row whose figure has crossovers says up to which bandwidth the compressor pays, and over which range.
    """

    profile: str
    figure: str
    network: Network
    compressor: Compressor
    batch: int
    axes: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]
    refused: tuple[str, ...] = ()

    @property
    def data(self) -> dict[str, object]:
        """The answer in plain values; what isn't finite is None."""
        return {
            "problem": "cupcake", "profile": self.profile, "figure": self.figure, "batch": self.batch or None,
            **network_data(self.network), "compressor": self.compressor.name, "axes": list(self.axes),
            "refused": list(self.refused),
            "rows": [{key: _plain(value) for key, value in row.items()} for row in self.rows],
        }  # fmt: skip

    @property
    def text(self) -> str:
        """The table, and what its crossovers are of."""
        titles = [title for title in self.rows[0] if title != "pays"]
        lines = [["pays below" if title.startswith("crossover") else words(title) for title in titles]]
        lines += [[_cell(title, row) for title in titles] for row in self.rows]
        said = [f"all at batch {self.batch}"] if self.batch and "batch" not in self.axes else []
        if "range" in titles:
            given = [words for axis, words in _RANGE_WORDS.items() if axis not in self.axes]
            said += [f"range of what {self.compressor.name} pays below: {' and '.join(given)}"] if given else []
        return "\n".join([table(lines), *said, *self.refused])


_RANGE_WORDS = {
    "latency_s": f"latencies of {LATENCIES[0]:g} to {LATENCIES[1]:g} times the one given",
    "gamma": f"gamma from {_GAMMAS[0]:g} to {_GAMMAS[1]:g}",
}


def what_if(
    profile: str | Path | FusionProfile,
    *,
    figure: str,
    compressor: str | Compressor = "powersgd",
    topology: str | Topology | None = None,
    nodes: int | None = None,
    levels: int | None = None,
    ranks_per_node: int | None = None,
    inner_bandwidth: float | None = None,
    inner_latency: float | None = None,
    memory: float | None = None,
    decoded: str = TOGETHER,
    **given: Sequence[Value] | Value | None,
) -> WhatIf:
    """The table of a figure for a profile on a network.

    `given`: the values of each of `AXES`; None for one value, the profile's or the model's own, or the study's where
    the figure is over that axis. The first ones are those of the network, described as for `find_network`. `memory`:
    what a rank has for the buffers of a compressor, in bytes; `decoded`: one of `DECODED`.
    Raises `InputError` that names an argument which is unknown, missing, or doesn't go with the others.
    """
    check_known("figure", figure, FIGURES)
    values = {name: _listed(of) for name, of in given.items() if of is not None}
    for name in values:
        check_known("axis", name, AXES)
    over = FIGURES[figure].axes
    number_of: dict[str, Any] = {
        name: values.get(name, [None])[0] for name in ("ranks", "bandwidth", "latency", "aggregation")
    }
    if topology is None:
        number_of |= {
            name: _study(name, ranks_per_node or 1)[0] for name, of in number_of.items() if of is None and name in over
        }
    network = find_network(
        **number_of, topology=topology, nodes=nodes, levels=levels,
        ranks_per_node=ranks_per_node, inner_bandwidth=inner_bandwidth, inner_latency=inner_latency,
    )  # fmt: skip
    found, chosen = find_fusion_profile(profile), named_compressor(compressor)
    check_known("decoded", decoded, DECODED)
    case = Case(ddp_model(found, network), chosen, found.batch, decoded)
    values |= {name: _study(name, network.ranks_per_node) for name in over if name not in values}
    count = math.prod(len(of) for of in values.values())
    if count > _MOST_ROWS:
        raise InputError(f"a table has {_MOST_ROWS} rows at most, got {count}: give fewer values")
    along = [*over, *(name for name in AXES if name in values and name not in over)]
    shown = [name for name in along if name in over or len(values[name]) > 1]
    cases = list(_cases(case, {name: values[name] for name in along}, shown))
    rows = tuple(_rows(FIGURES[figure], cases, shown))
    axes = tuple(_column(case, name) for name in sorted(shown, key=lambda name: len(values[name]) == 1))
    is_fixed = bool(found.batch) and "batch" in values and "batch" not in shown
    batch = round(float(_value(case, values["batch"][0]))) if is_fixed else found.batch
    refused = [] if memory is None else [each.model.refusal(each.compressor, memory, decoded) for each, _ in cases]
    said = tuple(dict.fromkeys(line for line in refused if line))
    return WhatIf(found.name, figure, network, chosen, batch, axes, rows, said)


def _study(name: str, ranks_per_node: int) -> list[Value]:
    """The values of an axis where none are given; ranks fill nodes."""
    if name == "ranks" and ranks_per_node > 1:
        return [ranks_per_node * nodes for nodes in _NODES]
    return list(AXES[name].values())


def _listed(values: Sequence[Value] | Value) -> list[Value]:
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]


def _column(case: Case, name: str) -> str:
    return "batch_factor" if name == "batch" and not case.batch else AXES[name].column


def _cases(
    base: Case, values: Mapping[str, Sequence[Value]], shown: Sequence[str]
) -> Iterator[tuple[Case, dict[str, object]]]:
    """The setting of each combination of the values, and what a row says of it."""
    for point in product(*values.values()):
        case, row = base, dict[str, object]()
        for name, value in zip(values, point, strict=True):
            case = AXES[name].at(case, value)
            if name in shown:
                row[_column(base, name)] = _value(base, value)
        yield case, row


def _rows(
    figure: Figure, cases: Sequence[tuple[Case, dict[str, object]]], shown: Sequence[str]
) -> Iterator[dict[str, object]]:
    """A row for each setting."""
    known: dict[Case, PaysInRange] = {}
    for case, said in cases:
        row = dict(said)
        for measure in figure.measures:
            row |= measure(case)
        if figure.has_crossover:
            anywhere = case.network_with(bytes_per_s=1.0)
            if anywhere not in known:
                known[anywhere] = _crossover(anywhere, [name for name in ("latency", "gamma") if name not in shown])
            row |= dict(known[anywhere])
        yield row


def _value(base: Case, value: Value) -> float | str:
    if not isinstance(value, Share):
        return value
    return value.ratio * (base.batch or 1)  # a profile that doesn't say its batch has shares


def _crossover(case: Case, uncertain: Sequence[str]) -> PaysInRange:
    """Up to which bandwidth the compressor pays, and the range where what is `uncertain` varies."""
    model = case.model
    latencies = [factor * model.network.outer.alpha_s for factor in LATENCIES] if "latency" in uncertain else []
    gammas = _GAMMAS if "gamma" in uncertain else ()
    point = model.crossover_bytes_per_s(case.compressor)
    around = [
        case.network_with(alpha_s=alpha_s).model_with(slowdown=gamma).model
        for alpha_s in (model.network.outer.alpha_s, *latencies)
        for gamma in (model.slowdown, *gammas)
    ]
    found = [point, *(other.crossover_bytes_per_s(case.compressor, _RANGE_PRECISION) for other in around[1:])]
    return {**pays(point), "range": [pays(min(found)), pays(max(found))]}


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(title: str, row: Mapping[str, object]) -> str:
    value = row[title]
    if title == "time_saved" and isinstance(value, float):
        return f"{100 * value:.1f} %"
    if isinstance(value, list):
        return " .. ".join(map(limit_words, value))
    if title == "crossover_bytes_per_s":
        return limit_words(row)
    if title.endswith(("_s", "_bytes")):
        return described(title, value)
    if value == math.inf:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
