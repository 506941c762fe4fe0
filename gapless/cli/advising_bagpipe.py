"""`gapless advise bagpipe`: which cache design and which lookahead suit a trace and a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.cli.clusters import add_cluster_options, cluster_data, read_cluster_options
from gapless.cli.traces import add_trace_options, read_trace_options
from gapless.errors import InputError

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.encodings.bagpipe.batch_plans import Planning
    from gapless.encodings.bagpipe.cluster import Cluster
    from gapless.encodings.bagpipe.comparison import DesignSummary, LookaheadSummary
    from gapless.encodings.bagpipe.tuning import Tuning

__all__ = ["add_question"]

_EXAMPLE = """\
Batches are planned for a window of the lookahead and as many again (50 at least), and their times follow from the
cluster. `critical`: rows synchronised while training waits; of a partitioned cache, what its busiest trainer sends and
receives, once each way. With a cache size, lookaheads that fit are tried first, and the smallest within 1 % of the
fastest is taken.

examples:
  gapless advise bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 50
  gapless advise bagpipe --trace clicks.csv --columns user,item --trainers 4 --cache-size 200MB --fetch-latency 50ms
"""

_LOOKAHEAD = 200
_DESIGN_COLUMNS = {
    "design": "design", "fetched_rows": "fetched", "critical_rows": "critical", "background_rows": "background",
    "evicted_rows": "evicted", "critical_bytes": "critical size", "sync_s": "sync", "stall_s": "stall",
    "iteration_s": "iteration", "iteration_vs_lrpp": "vs lrpp",
}  # fmt: skip
_TRIED_COLUMNS = {
    "lookahead": "lookahead", "cache_rows": "cache rows", "cache_bytes": "cache", "stall_s": "stall",
    "iteration_s": "iteration",
}  # fmt: skip


def add_question(questions: Any) -> None:
    """Add `bagpipe` to the questions of `advise`."""
    parser = questions.add_parser(
        "bagpipe",
        help="cache designs side by side, and the lookahead for a cache",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_trace_options(parser.add_argument_group("trace"))
    group = parser.add_argument_group("problem")
    group.add_argument("--trainers", type=shared.Whole(1, 10_000), default=8, metavar="N", help="(default 8)")
    group.add_argument("--batch-size", type=shared.Whole(1), default=16_384, metavar="N", help="(default 16384)")
    group.add_argument(
        "--lookahead", type=shared.Whole(1, 10_000), metavar="L",
        help=f"batches (default {_LOOKAHEAD}); with a cache size, the largest to try",
    )  # fmt: skip
    group.add_argument(
        "--cache-rows", type=shared.Whole(1, 2**40), metavar="N", help="tune the lookahead for this cache"
    )
    group.add_argument("--cache-size", type=shared.size, metavar="SIZE", help="the same, in bytes such as 500MB")
    group.add_argument("--batches", type=shared.Whole(1), metavar="N", help="plan no more than so many each time")
    group.add_argument(
        "--objective", default="paper", metavar="NAME", help="of the partition: paper (default), fetches, max-load"
    )
    group.add_argument("--design", default="lrpp-delayed", metavar="NAME", help="to tune for (default lrpp-delayed)")
    add_cluster_options(parser.add_argument_group("cluster"))
    shared.add_output_options(parser)
    parser.set_defaults(run=_advise)


def _advise(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import print_json
    from gapless.encodings.bagpipe.comparison import compare_designs, lookahead_table
    from gapless.encodings.bagpipe.designs import checked_design
    from gapless.encodings.bagpipe.tuning import tune_lookahead

    trace = read_trace_options(arguments)
    cluster = read_cluster_options(arguments, arguments.trainers)
    planning, design = _planning(arguments, cluster), checked_design(arguments.design)
    if planning.cache_rows is None:
        tuning = None
        (chosen,) = lookahead_table(trace, planning, cluster, [planning.lookahead or _LOOKAHEAD], design)
    else:
        tuning = tune_lookahead(trace, planning, cluster, design)
        chosen = tuning.chosen
    designs = compare_designs(chosen.counts, cluster)
    if arguments.json:
        data = {
            "problem": "bagpipe", "trace": trace.name, "trainers": arguments.trainers,
            "batch_size": arguments.batch_size, "objective": arguments.objective, "cluster": cluster_data(cluster),
            "ideal_s": cluster.ideal_s, **_lookahead_data(chosen), "designs": _design_rows(designs),
        }  # fmt: skip
        print_json(data | ({"tuning": _tuning_data(tuning)} if tuning else {}))
    elif not arguments.quiet:
        _print_advice(chosen, designs, tuning, cluster)
    return 0


def _planning(arguments: argparse.Namespace, cluster: Cluster) -> Planning:
    from gapless.encodings.bagpipe.batch_plans import Planning

    if arguments.cache_rows is not None and arguments.cache_size is not None:
        raise InputError("give --cache-rows or --cache-size, not both")
    cache_rows = arguments.cache_rows
    if arguments.cache_size is not None:
        cache_rows = arguments.cache_size // cluster.row_bytes
        if not cache_rows:
            raise InputError(f"--cache-size: must hold a row of {cluster.row_bytes} bytes, got {arguments.cache_size}")
    lookahead = arguments.lookahead
    if lookahead is None and cache_rows is None:
        lookahead = _LOOKAHEAD
    return Planning(
        trainers=arguments.trainers,
        batch_size=arguments.batch_size,
        lookahead=lookahead,
        cache_rows=cache_rows,
        objective=arguments.objective,
        batches=arguments.batches,
    )


def _lookahead_data(entry: LookaheadSummary) -> dict[str, Any]:
    return {
        "lookahead": entry.lookahead, "batches": entry.counts.batches, "cache_rows": entry.cache_rows,
        "cache_bytes": entry.cache_bytes, "stall_s": entry.stall_s, "iteration_s": entry.iteration_s,
    }  # fmt: skip


def _tuning_data(tuning: Tuning) -> dict[str, Any]:
    return {
        "cache_rows": tuning.cache_rows, "rule_lookahead": tuning.rule, "settled_lookahead": tuning.settled,
        "chosen_lookahead": tuning.chosen.lookahead, "tried": [_lookahead_data(entry) for entry in tuning.tried],
    }  # fmt: skip


def _design_rows(designs: tuple[DesignSummary, ...]) -> list[dict[str, Any]]:
    lrpp = next(entry for entry in designs if entry.design == "lrpp")
    numbers = (
        "design", "fetched_rows", "critical_rows", "background_rows", "peer_rows", "evicted_rows", "fetched_bytes",
        "critical_bytes", "background_bytes", "evicted_bytes", "sync_s", "stall_s", "iteration_s",
    )  # fmt: skip
    ratio = "iteration_vs_lrpp"
    return [
        {name: getattr(entry, name) for name in numbers} | {ratio: _ratio(entry.iteration_s, lrpp.iteration_s)}
        for entry in designs
    ]


def _ratio(value: float, base: float) -> float | None:
    return value / base if base else None


def _print_advice(
    chosen: LookaheadSummary, designs: tuple[DesignSummary, ...], tuning: Tuning | None, cluster: Cluster
) -> None:
    from gapless.text import described

    if tuning is not None:
        _print_columns([_lookahead_data(entry) for entry in tuning.tried], _TRIED_COLUMNS)
        fits = f"{tuning.rule} fits at start-up" + (f", {tuning.settled} later" * (tuning.settled != tuning.rule))
        print(f"lookahead: {chosen.lookahead} of those tried ({fits})\n")
    cache = f"{chosen.cache_rows} rows, {described('cache_bytes', chosen.cache_bytes)}"
    print(f"lookahead {chosen.lookahead}, cache {cache}, {chosen.counts.batches} batches planned; per iteration:")
    _print_columns(_design_rows(designs), _DESIGN_COLUMNS)
    best = min(designs, key=lambda entry: entry.iteration_s)
    ideal = described("ideal_s", cluster.ideal_s)
    print(f"best: {best.design}, {described('iteration_s', best.iteration_s)}; without embedding access {ideal}")


def _print_columns(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    from gapless.text import table

    print(table([list(columns.values()), *([_cell(name, row[name]) for name in columns] for row in rows)]))


def _cell(name: str, value: Any) -> str:
    from gapless.text import described

    if name.endswith("_rows"):
        return f"{value:.0f}"
    if name.endswith("_vs_lrpp"):
        return "-" if value is None else f"{value:.3f}x"
    return described(name, value)
