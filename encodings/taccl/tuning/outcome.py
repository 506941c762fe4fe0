"""The outcome: of two measurements a table and a selector, and what people see of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gapless.encodings.taccl.tuning.candidates import Candidates
from gapless.encodings.taccl.tuning.requests import Request
from gapless.encodings.taccl.tuning.winners import Contest, beats, fastest, intervals, noise_of
from gapless.io.formats.tuned_file import Row, Selector, Served, Table, Tried, WinningPlan
from gapless.report.text import table as text_table
from gapless.units import format_bytes, format_seconds

__all__ = ["Measured", "Outcome", "hopeful", "outcome_of", "text_of"]


@dataclass(frozen=True)
class Measured:
    """The contests of all cells, of the first measurement and of the second, which has the hopeful plans alone."""

    first: tuple[Contest, ...]
    second: tuple[Contest, ...]


@dataclass(frozen=True)
class Outcome:
    """The table, the selector, and the texts of the plans that it names, by file."""

    table: Table
    selector: Selector
    plans: Mapping[str, str]


def hopeful(contests: Sequence[Contest], seed: int) -> list[tuple[int, ...]]:
    """Of each cell, the plans that beat the library by more than its noise, the fastest first."""
    found = []
    for contest in contests:
        noise = noise_of(contest.library_s, seed)
        winners = [plan for plan in contest.plan_s if beats(contest, plan, noise)]
        found.append(tuple(sorted(winners, key=lambda plan: contest.median_s(plan) or 0.0)))
    return found


def outcome_of(
    requests: Sequence[Request], candidates: Candidates, measured: Measured, head: Table, seed: int
) -> Outcome:
    """The plans that beat the library in both measurements, and the sizes that they serve.

    `head`: the table without its rows.
    """
    ratios = [_kept(first, second, seed) for first, second in zip(measured.first, measured.second, strict=True)]
    served: list[Served] = []
    for name, ranks in dict.fromkeys((one.collective, one.ranks) for one in requests):
        places = [k for k, one in enumerate(requests) if (one.collective, one.ranks) == (name, ranks)]
        sizes = [requests[place].size_bytes for place in places]
        for one in intervals(sizes, [ratios[place] for place in places]):
            served.append(Served(name, ranks, one.min_bytes, one.max_bytes, one.plan))
    numbers = {plan: number for number, plan in enumerate(dict.fromkeys(one.plan for one in served))}
    files = {plan: f"plans/{number}.json" for plan, number in numbers.items()}
    selector = Selector(
        head.date, head.backend, head.ranks,
        tuple(WinningPlan(file, _sha256(candidates.texts[plan])) for plan, file in files.items()),
        tuple(replace(one, plan=numbers[one.plan]) for one in served),
    )  # fmt: skip
    rows = tuple(
        _row(request, candidates, place, measured, selector, numbers, seed) for place, request in enumerate(requests)
    )
    return Outcome(replace(head, rows=rows), selector, {file: candidates.texts[plan] for plan, file in files.items()})


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _kept(first: Contest, second: Contest, seed: int) -> dict[int, float]:
    """Plan over library in the second measurement, of the plans that beat the library in both."""
    noises = noise_of(first.library_s, seed), noise_of(second.library_s, seed)
    return {
        plan: (second.median_s(plan) or 0.0) / second.library_median_s
        for plan in second.plan_s
        if beats(first, plan, noises[0]) and beats(second, plan, noises[1])
    }


def _row(
    request: Request, candidates: Candidates, place: int, measured: Measured, selector: Selector,
    numbers: Mapping[int, int], seed: int,
) -> Row:  # fmt: skip
    first, second = measured.first[place], measured.second[place]
    winner = selector.plan_for(request.collective, request.ranks, request.size_bytes)
    by_number = {number: plan for plan, number in numbers.items()}
    plan = by_number[winner] if winner is not None else fastest(first)
    counts = second if plan is not None and second.median_s(plan) is not None else first
    predicted = {entrant.plan: entrant.predicted_s for entrant in candidates.cells[place]}
    plan_s = None if plan is None else counts.median_s(plan)
    first_s = None if plan is None else first.median_s(plan)
    return Row(
        collective=request.collective,
        ranks=request.ranks,
        size_bytes=request.size_bytes,
        library_s=counts.library_median_s,
        noise=noise_of(counts.library_s, seed),
        winner=winner,
        made_by="" if plan is None else candidates.made_by[plan],
        predicted_s=None if plan is None else predicted[plan],
        plan_s=plan_s,
        first_ratio=None if first_s is None or not first.library_median_s else first_s / first.library_median_s,
        tried=tuple(
            Tried(candidates.made_by[one], predicted_s, first.median_s(one) or 0.0)
            for one, predicted_s in predicted.items()
        ),
    )


def text_of(table: Table) -> str:
    """A line for each cell."""
    heads = ["collective", "ranks", "size", "library", "noise", "plan", "plan / library", "predicted", "made by",
             "taken"]  # fmt: skip
    lines = [heads]
    for row in table.rows:
        lines.append([
            row.collective, _named(row.ranks, table.ranks), format_bytes(row.size_bytes),
            format_seconds(row.library_s) if row.library_s else "-", f"{100 * row.noise:.1f} %",
            "-" if row.plan_s is None else format_seconds(row.plan_s),
            "-" if row.ratio is None else f"{row.ratio:.3f}",
            "-" if row.predicted_s is None else format_seconds(row.predicted_s), row.made_by or "-",
            "library" if row.winner is None else f"plan {row.winner}",
        ])  # fmt: skip
    return text_table(lines)


def _named(ranks: tuple[int, ...], count: int) -> str:
    """`all`, or the ranks with runs of them as 0-3."""
    if ranks == tuple(range(count)):
        return "all"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
