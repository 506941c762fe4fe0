"""The sweep: synthesise at every size, try every plan at every size, choose, and write the files."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gapless.checker import check
from gapless.encodings.taccl.baselines import Baselines
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.programs.instances import with_instances
from gapless.encodings.taccl.solve import solve
from gapless.encodings.taccl.sweep.candidates import Candidate, Lowering, Times
from gapless.encodings.taccl.sweep.pipelining import pipelined
from gapless.encodings.taccl.sweep.ranges import Choice, Range, choose, to_ranges
from gapless.encodings.taccl.sweep.request import Request, larger_buffer
from gapless.encodings.taccl.sweep.table import SUMMARY_JSON, Row, write_table
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, claim_data, read_plan, write_plan
from gapless.io.taccl_ef import write_program
from gapless.options import Deadline, Progress, SolveOptions
from gapless.schedule import Schedule
from gapless.solution import StopReason
from gapless.units import format_bytes

__all__ = ["Outcome", "sweep"]

Job = tuple[int, int]
"""(size, parts)."""

XML_FOLDER = "xml"
_PIPELINED = 2
"""At each size, so many of the fastest plans are tried in pieces, twice as many as long as that is faster."""
_BASELINES_SHARE = 0.5
"""The part of the time limit after which no size's baselines are begun."""
_MOST_PIECES = 64
_MOST_TRANSFERS = 40_000
_MORE_TIME = 1.5
"""A plan whose synthesis ran out of time is tried again where it would get this many times as long."""


@dataclass(frozen=True)
class Outcome:
    """What a sweep has found: a row for each size, the files by range, and what could not be lowered, with reasons.

    `is_complete`: whether every size has had its synthesis and is served by a file.
    """

    rows: list[Row]
    ranges: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    is_complete: bool


@dataclass
class _Sweep:
    """What is asked, and what is known by now: plans by job (size, parts), the rest by size."""

    request: Request
    options: SolveOptions
    folder: Path
    deadline: Deadline
    key: str
    times: Times
    lowering: Lowering
    plans: dict[Job, SavedPlan] = field(default_factory=dict)
    candidates: dict[Job, Candidate] = field(default_factory=dict)
    baselines: dict[int, list[Candidate]] = field(default_factory=dict)
    pipelines: dict[int, list[Candidate]] = field(default_factory=dict)

    def path(self, job: Job) -> Path:
        """The file of a synthesised plan."""
        size_bytes, parts = job
        return self.folder / f"{self.request.collective}-{size_bytes}-{parts}-{self.key}.json"

    def fastest_s(self, candidate: Candidate, size_bytes: int) -> float:
        """What a candidate takes with its best number of instances."""
        return min(self.times.makespan_s(candidate, size_bytes, number) for number in self.request.instances)

    def report(self, phase: str, size_bytes: int, makespan_s: float | None, bound_s: float | None) -> None:
        """Report to the caller what is done."""
        if self.options.on_progress is not None:
            phase = f"{format_bytes(size_bytes)}: {phase}"
            done, total = sum(_is_answered(self, job) for job in self.request.jobs), len(self.request.jobs)
            now_s = self.deadline.elapsed_s
            self.options.on_progress(Progress(now_s, makespan_s, bound_s, phase, done=done, total=total))


def sweep(request: Request, options: SolveOptions, folder: str | Path) -> Outcome:
    """Synthesise a plan for every size that has none in `folder` yet, then choose for every size and write the files.

    `options`: the time limit is for all sizes together, half of it for the synthesis in any case; the gap for each.
    `stop` ends the synthesis: what is there is chosen from. The folder is made if it isn't there, and gets a plan file
    for each size, `xml/` with a program for each range of sizes, and the table as `summary.csv` and `summary.json`.
    Programs of an earlier sweep that are no longer wanted are removed. A baseline that beats every plan at a size
    serves it.

    Raises `InputError` for a folder that can't be written to, and for what `Chunked` refuses.
    """
    xml = Path(folder) / XML_FOLDER
    try:
        xml.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {xml}: {error.strerror}; choose another one") from None
    state = _Sweep(
        request, options, Path(folder), Deadline(options), request.key(options), Times(request), Lowering(request)
    )
    for job in request.jobs:
        _recall(state, job)
    _find_baselines(state)
    _leave_time_to_synthesise(state)
    _synthesise(state)
    _pipeline(state)
    return _write(state)


# -- candidates --------------------------------------------------------------------------------------------------------


def _find_baselines(state: _Sweep) -> None:
    """The baselines of every size, in the variants that are fastest with the fewest and with the most instances.

    Sizes that half of the time doesn't reach do with those of their neighbours: there must be time to synthesise.
    """
    request = state.request
    definition = request.definition
    known: dict[tuple[str, bytes], Candidate] = {}
    library = Baselines(request.topology, definition)
    for size in dict.fromkeys(size for size, _ in request.jobs):  # the ends of the range first
        limit_s = state.options.time_limit_s
        if state.deadline.over or (limit_s is not None and state.deadline.elapsed_s > _BASELINES_SHARE * limit_s):
            return
        found_here = state.baselines.setdefault(size, [])
        for instances in sorted({request.instances[0], request.instances[-1]}):
            topology = with_instances(request.topology, instances, request.costs)
            for found in library.of_size(-(-size // larger_buffer(definition)), topology):
                title = f"{found.name} ({found.variant})"
                plain = replace(found.schedule, topology=request.topology)  # its times are of other instances
                made = Candidate(title, found.collective, plain, True)
                candidate = known.setdefault((title, np.sort(found.schedule.place).tobytes()), made)
                if candidate not in found_here:
                    found_here.append(candidate)
        fastest_s = min(state.fastest_s(candidate, size) for candidate in found_here)
        state.report("baselines", size, fastest_s, None)


def _leave_time_to_synthesise(state: _Sweep) -> None:
    """One size's baselines may take longer than all the time there is; the rest of the time is the half then."""
    limit_s = state.options.time_limit_s
    if limit_s is not None and state.deadline.remaining_s < (1 - _BASELINES_SHARE) * limit_s:
        state.deadline = Deadline(replace(state.options, time_limit_s=(1 - _BASELINES_SHARE) * limit_s))


def _synthesise(state: _Sweep) -> None:
    """Give every job that has no answer an even share of the time that is left."""
    waiting = [job for job in state.request.jobs if not _is_answered(state, job)]
    for number, job in enumerate(waiting):
        if state.deadline.over:
            return
        share_s = state.deadline.remaining_s / (len(waiting) - number)
        stage = state.deadline.stage(share_s)
        problem = state.request.problem(*job)
        options = SolveOptions(
            stage.time_limit_s, stage.gap, stage.threads, stage.seed, stage.solver, None, state.options.stop
        )
        found = solve(problem, options)
        report = None if found.schedule is None else check(found.schedule)
        if found.schedule is None or report is None or not report.valid:
            state.report(f"no plan ({found.solution.stop_reason.value})", job[0], None, None)
            continue
        claim, run = claim_data(found.solution), {"solve_s": round(found.solution.wall_s, 6)}
        plan = SavedPlan(problem.system, problem.description, claim, found.details, found.schedule, run)
        before = state.plans.get(job)
        if before is None or report.makespan_s <= float(before.schedule.end_s.max(initial=0.0)):
            write_plan(state.path(job), plan)
            _keep(state, job, problem, plan)
        status = found.solution.status.value
        phase = status if job[1] == 1 else f"{status}, {job[1]} parts"
        state.report(phase, job[0], report.makespan_s, found.solution.bound)


def _pipeline(state: _Sweep) -> None:
    """Find the best numbers of pieces for the fastest plans of each size."""
    known: dict[tuple[Candidate, int], Candidate] = {}
    for size in state.request.sizes_bytes:
        plans = sorted(state.candidates.values(), key=lambda plan: state.fastest_s(plan, size))
        pieces_of = state.pipelines.setdefault(size, [])
        for plan in plans[:_PIPELINED]:
            last_s, pieces = state.fastest_s(plan, size), 2
            while pieces <= _MOST_PIECES and pieces * len(plan.schedule) <= _MOST_TRANSFERS:
                if (plan, pieces) not in known:
                    known[plan, pieces] = pipelined(plan, pieces)
                pieces_of.append(known[plan, pieces])
                now_s = state.fastest_s(pieces_of[-1], size)
                if now_s >= last_s:
                    break
                last_s, pieces = now_s, 2 * pieces


def _is_answered(state: _Sweep, job: Job) -> bool:
    """Whether the plan of an earlier sweep will do: not if it was interrupted, or would get much more time now."""
    if job not in state.plans:
        return False
    plan = state.plans[job]
    if plan.claim["stop_reason"] == StopReason.INTERRUPTED.value:
        return False
    limit_s = math.inf if state.options.time_limit_s is None else state.options.time_limit_s / len(state.request.jobs)
    may_gain = limit_s >= _MORE_TIME * (plan.solve_s or 0.0)
    return plan.claim["stop_reason"] != StopReason.TIME_LIMIT.value or not may_gain


def _recall(state: _Sweep, job: Job) -> None:
    """Read the plan of an earlier sweep, if there is one that holds; a damaged one is as good as none."""
    with suppress(InputError, LookupError, TypeError, ValueError):
        if state.path(job).exists():
            plan, problem = read_plan(state.path(job)), state.request.problem(*job)
            StopReason(plan.claim["stop_reason"])
            if _is_for(plan.schedule, problem) and check(plan.schedule).valid:
                _keep(state, job, problem, plan)


def _is_for(schedule: Schedule, problem: Chunked) -> bool:
    """Whether a schedule is of the problem's chunks, from and to the same ranks."""
    mine, theirs = schedule.graph, problem.collective.graph(problem.chunk_bytes)
    return np.array_equal(mine.size_bytes, theirs.size_bytes) and all(
        np.array_equal(one.tensors, other.tensors)
        and np.array_equal(one.devices, other.devices)
        and one.contributions == other.contributions
        for one, other in ((mine.initial, theirs.initial), (mine.required, theirs.required))
    )


def _keep(state: _Sweep, job: Job, problem: Chunked, plan: SavedPlan) -> None:
    state.plans[job] = plan
    name = f"plan-{format_bytes(job[0]).replace(' ', '')}" + (f"-{job[1]}" if job[1] > 1 else "")
    state.candidates[job] = Candidate(name, problem.collective, plan.schedule, False)


# -- the choice, and its files -----------------------------------------------------------------------------------------


def _write(state: _Sweep) -> Outcome:
    request = state.request
    sizes = request.sizes_bytes
    choices = [_choices(state, place) for place in range(len(sizes))]

    def can_be(choice: Choice) -> bool:
        return state.lowering.program(*choice) is not None

    chosen = choose(sizes, choices, state.times, request.tolerance, can_be)
    ranges = to_ranges(sizes, chosen, state.times) if chosen else []
    if not chosen:  # nothing can be lowered: the table is there all the same
        chosen = choose(sizes, choices, state.times, request.tolerance, lambda choice: True)
    files = [_file_name(request, number, one) for number, one in enumerate(ranges)]
    _remove_old(state.folder, set(files))
    for name, one in zip(files, ranges, strict=True):
        title = name.removesuffix(".xml")
        program = state.lowering.for_range(*one.choice, title, one.min_bytes, one.max_bytes)
        write_program(state.folder / XML_FOLDER / name, program)
    xml_of = {size: name for name, one in zip(files, ranges, strict=True) for size in one.sizes_bytes}
    s_per_byte = bounds_of(Chunked(request.topology, request.definition, 1)).s_per_byte
    rows = [
        _row(state, place, choices[place], chosen[place] if chosen else None, xml_of.get(size), s_per_byte)
        for place, size in enumerate(sizes)
    ]
    listed = [_range_data(one, name) for name, one in zip(files, ranges, strict=True)]
    refused = [
        {"plan": name, "instances": instances, "reason": reason}
        for (name, instances), reason in state.lowering.refused.items()
    ]
    more = {"collective": request.collective, "topology": request.topology.name, "ranges": listed, "refused": refused}
    write_table(state.folder, rows, more)
    done = all(_is_answered(state, job) for job in request.jobs)
    return Outcome(rows, listed, refused, done and bool(ranges))


def _choices(state: _Sweep, place: int) -> list[Choice]:
    """What may serve a size: all plans, and the pipelines and baselines of this size and its neighbours."""
    sizes = state.request.sizes_bytes[max(place - 1, 0) : place + 2]
    near = [other for found in (state.pipelines, state.baselines) for size in sizes for other in found.get(size, [])]
    candidates = dict.fromkeys([*state.candidates.values(), *near])
    return [(candidate, instances) for candidate in candidates for instances in state.request.instances]


def _row(
    state: _Sweep, place: int, choices: list[Choice], chosen: Choice | None, xml: str | None, s_per_byte: float
) -> Row:
    request, size = state.request, state.request.sizes_bytes[place]
    chunk_bytes = -(-size // larger_buffer(request.definition))
    question = Chunked(request.topology, request.definition, chunk_bytes)
    bound_s = bounds_of(question, s_per_byte=s_per_byte).any_chunking_s
    found = [_fastest(state, size, choices, is_baseline) for is_baseline in (False, True)]
    (synthesised, synthesised_s), (baseline, baseline_s) = found
    makespan_s = None if chosen is None else state.times.checked_s(chosen[0], size, chosen[1])
    plans = [state.plans[job] for job in request.jobs if job[0] == size and job in state.plans]
    return Row(
        size_bytes=size,
        plan=None if chosen is None else chosen[0].name,
        instances=None if chosen is None else chosen[1],
        makespan_s=makespan_s,
        algbw_bytes_per_s=None if not makespan_s else size / makespan_s,
        bound_s=bound_s,
        ratio_to_bound=_ratio(makespan_s, bound_s),
        baseline=None if baseline is None else baseline[0].name,
        baseline_instances=None if baseline is None else baseline[1],
        baseline_s=baseline_s,
        ratio_to_baseline=_ratio(makespan_s, baseline_s),
        synthesised=None if synthesised is None else synthesised[0].name,
        synthesised_instances=None if synthesised is None else synthesised[1],
        synthesised_s=synthesised_s,
        synthesised_ratio=_ratio(synthesised_s, baseline_s),
        xml=xml,
        solve_s=sum(plan.solve_s or 0.0 for plan in plans) if plans else None,
        stop_reason=", ".join(dict.fromkeys(plan.claim["stop_reason"] for plan in plans)) or None,
    )


def _fastest(
    state: _Sweep, size_bytes: int, choices: list[Choice], is_baseline: bool
) -> tuple[Choice, float] | tuple[None, None]:
    """The fastest choice of one kind, as checked."""
    fitting = [choice for choice in choices if choice[0].is_baseline == is_baseline]
    if not fitting:
        return None, None
    best = min(fitting, key=lambda choice: state.times.makespan_s(choice[0], size_bytes, choice[1]))
    return best, state.times.checked_s(best[0], size_bytes, best[1])


def _ratio(time_s: float | None, other_s: float | None) -> float | None:
    return time_s / other_s if time_s is not None and other_s else None


def _range_data(one: Range, name: str) -> dict[str, Any]:
    return {
        "xml": name,
        "plan": one.choice[0].name,
        "instances": one.choice[1],
        "min_bytes": one.min_bytes,
        "max_bytes": one.max_bytes,
        "sizes_bytes": list(one.sizes_bytes),
    }


def _file_name(request: Request, number: int, one: Range) -> str:
    """Numbered by range, since the runtimes take the first that fits, by name."""
    what = re.sub(r"[^A-Za-z0-9.]+", "-", one.choice[0].name.split(" (")[0]).strip("-")
    return f"{number:03d}-{request.collective}-{request.topology.device_count}-{what}-x{one.choice[1]}.xml"


def _remove_old(folder: Path, wanted: set[str]) -> None:
    """Remove the programs that an earlier sweep wrote into the folder, as its summary lists them."""
    try:
        data = json.loads((folder / SUMMARY_JSON).read_text(encoding="utf-8"))
        names = [one["xml"] for one in data["ranges"]]
    except (OSError, ValueError, LookupError, TypeError):
        return
    for name in names:
        if isinstance(name, str) and re.fullmatch(r"\d{3}-[A-Za-z0-9.-]+\.xml", name) and name not in wanted:
            (folder / XML_FOLDER / name).unlink(missing_ok=True)
