"""Advice: the cache designs side by side for a trace and a cluster, and the lookahead for a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from gapless.encodings.bagpipe.advice.comparison import (
    DesignSummary,
    LookaheadSummary,
    Tuning,
    batches_wanted,
    compare_baselines,
    compare_designs,
    lookahead_table,
    tune_lookahead,
)
from gapless.encodings.bagpipe.cluster import Cluster, cluster_of
from gapless.encodings.bagpipe.problem import Planning
from gapless.encodings.bagpipe.question import AdviceQuestion
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.named import trace_of
from gapless.report.short_repr import BriefText
from gapless.report.text import described, table
from gapless.units import format_count

__all__ = ["Advice", "advise"]

_DESIGN_COLUMNS = {
    "design": "design", "fetched_rows": "fetched", "critical_rows": "critical", "background_rows": "background",
    "evicted_rows": "evicted", "critical_bytes": "critical size", "sync_s": "sync", "stall_s": "stall",
    "iteration_s": "iteration", "iteration_vs_lrpp": "vs lrpp",
}  # fmt: skip
_TRIED_COLUMNS = {
    "lookahead": "lookahead", "cache_rows": "cache rows", "cache_bytes": "cache", "stall_s": "stall",
    "iteration_s": "iteration",
}  # fmt: skip
"""Columns of the tables for people, with their titles."""

_SIZED = {"fetched": "row", "critical": "gradient", "background": "gradient", "evicted": "row"}
"""Rows of a design that are given in bytes too, and what of them moves: all, or their values alone."""


@dataclass(frozen=True, repr=False)
class Advice(BriefText):
    """The designs for the `chosen` lookahead; `tuning` says how it was chosen, None where it was given.

    `left_out`: what there was no time for, empty where that is nothing.
    """

    trace: str
    planning: Planning
    cluster: Cluster
    chosen: LookaheadSummary
    designs: tuple[DesignSummary, ...]
    tuning: Tuning | None
    left_out: str = ""

    @property
    def data(self) -> dict[str, object]:
        """The answer in plain values."""
        planning, tuning = self.planning, self.tuning
        data = {
            "problem": "bagpipe", "trace": self.trace, "trainers": planning.trainers,
            "batch_size": planning.batch_size, "objective": planning.objective, "cluster": asdict(self.cluster),
            "ideal_s": self.cluster.ideal_s, **_lookahead_data(self.chosen), "designs": self._design_rows,
        }  # fmt: skip
        if tuning is not None:
            data["tuning"] = {
                "cache_rows": tuning.cache_rows, "rule_lookahead": tuning.rule, "settled_lookahead": tuning.settled,
                "chosen_lookahead": tuning.chosen.lookahead,
                "tried": [_lookahead_data(entry) for entry in tuning.tried],
            }  # fmt: skip
        return data

    @property
    def text(self) -> str:
        """The answer as tables, and in a line."""
        chosen, tuning, lines = self.chosen, self.tuning, []
        if tuning is not None:
            fits = f"{tuning.rule} fits at start-up" + (f", {tuning.settled} later" * (tuning.settled != tuning.rule))
            lines = [
                _table([_lookahead_data(entry) for entry in tuning.tried], _TRIED_COLUMNS),
                f"lookahead: {chosen.lookahead} of those tried ({fits})\n",
            ]
        cache = f"{format_count(chosen.cache_rows)} rows, {described('cache_bytes', chosen.cache_bytes)}"
        best = min(self.designs, key=lambda entry: entry.iteration_s)
        ideal = described("ideal_s", self.cluster.ideal_s)
        return "\n".join([
            *lines,
            f"lookahead {chosen.lookahead}, cache {cache}, {chosen.counts.batches} batches planned; per iteration:",
            _table(self._design_rows, _DESIGN_COLUMNS),
            f"best: {best.design}, {described('iteration_s', best.iteration_s)}; without embedding access {ideal}",
        ])  # fmt: skip

    @property
    def _design_rows(self) -> list[dict[str, object]]:
        lrpp_s = next(entry.iteration_s for entry in self.designs if entry.design == "lrpp")
        return [
            {name: value for name, value in vars(entry).items() if name not in ("row_bytes", "gradient_bytes")}
            | {
                f"{name}_bytes": getattr(entry, f"{name}_rows") * getattr(entry, f"{of}_bytes")
                for name, of in _SIZED.items()
            }
            | {"iteration_vs_lrpp": entry.iteration_s / lrpp_s if lrpp_s else None}
            for entry in self.designs
        ]


def advise(trace: object, *, options: SolveOptions | None = None, **values: object) -> Advice:
    """What is advised for a trace; `values` are the fields of `AdviceQuestion`.

    `options`: once their time is up, the answer is made of the batches and the lookaheads that there was time for.
    Raises `InputError` that names an argument which is unknown or doesn't go with the others.
    """
    asked = AdviceQuestion(trace, **values)  # type: ignore[arg-type]  # the field reads it
    trace_read, machine = trace_of(asked), cluster_of(asked, asked.trainers, asked.batch_size)
    rows, design = _cache_rows(asked.cache_rows, asked.cache_size, machine), asked.design
    planning = Planning(
        asked.trainers, asked.batch_size, asked.lookahead, rows, asked.objective, design=design, batches=asked.batches
    )
    deadline = Deadline(options or SolveOptions())
    tuning = None if rows is None else tune_lookahead(trace_read, planning, machine, design, deadline)
    if tuning is None:
        assert planning.lookahead is not None, "a planning without a cache has a lookahead"
        (chosen,) = lookahead_table(trace_read, planning, machine, [planning.lookahead], design, deadline)
    else:
        chosen = tuning.chosen
    designs, left_out = compare_designs(chosen.counts, machine), _left_out(deadline, planning, tuning, chosen)
    if asked.baselines and deadline.over:
        left_out = ", ".join(filter(None, [left_out, "the baselines"]))
    elif asked.baselines:
        designs += compare_baselines(trace_read, planning, chosen.counts, machine)
    return Advice(trace_read.name, planning, machine, chosen, designs, tuning, left_out)


def _left_out(deadline: Deadline, planning: Planning, tuning: Tuning | None, chosen: LookaheadSummary) -> str:
    """What the deadline has cut short, if it has."""
    if not (deadline.over or deadline.has_struck):
        return ""
    last = chosen if tuning is None else tuning.tried[-1]
    most = batches_wanted(replace(planning, lookahead=last.asked))
    missing = []
    if last.counts.batches < most:
        missing.append(f"{most - last.counts.batches} of {most} batches with a lookahead of {last.asked}")
    if tuning is not None and last.asked < tuning.settled:
        missing.append(f"lookaheads above {last.asked}")
    return ", ".join(missing)


def _cache_rows(cache_rows: int | None, cache_size: int | None, cluster: Cluster) -> int | None:
    """The rows of a cache that is given by their number or by its size in bytes."""
    if cache_size is None:
        return cache_rows
    if cache_rows is not None:
        raise InputError("cache_rows: give it or cache_size, not both")
    if cache_size < cluster.row_bytes:
        raise InputError(f"cache_size: must hold a row of {cluster.row_bytes} bytes, got {cache_size}")
    return cache_size // cluster.row_bytes


def _lookahead_data(entry: LookaheadSummary) -> dict[str, object]:
    return {
        "lookahead": entry.lookahead, "batches": entry.counts.batches, "cache_rows": entry.cache_rows,
        "cache_bytes": entry.cache_bytes, "stall_s": entry.stall_s, "iteration_s": entry.iteration_s,
    }  # fmt: skip


def _table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> str:
    return table([list(columns.values()), *([_cell(name, row[name]) for name in columns] for row in rows)])


def _cell(name: str, value: object) -> str:
    if name.endswith("_rows"):
        return f"{value:.0f}"
    if name.endswith("_vs_lrpp"):
        return "-" if value is None else f"{value:.3f}x"
    return described(name, value)
