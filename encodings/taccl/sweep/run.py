"""The sweep: synthesise at every size, try every plan at every size, choose, and write the files."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from gapless.encodings.taccl.baselines.library import Baselines
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.question import SweepQuestion
from gapless.encodings.taccl.sweep.candidates import Candidate, Lowering, Times, pipelined
from gapless.encodings.taccl.sweep.ranges import Choice, Range, choose, to_ranges
from gapless.encodings.taccl.sweep.request import Job, Request, larger_buffer, request_of, with_instances
from gapless.encodings.taccl.sweep.table import FORMAT, VERSION, Outcome, Refused, Row, Served, Tried, notes_of, text_of
from gapless.io.atomic import make_folder
from gapless.io.formats.collective_file import collective_of
from gapless.io.plan import read_plan
from gapless.io.record import load_record
from gapless.io.taccl_ef import write_program
from gapless.options import Deadline, Progress, SolveOptions
from gapless.question.parameters import parameters_of
from gapless.solution import StopReason
from gapless.sweeps.local import Outcome as SweepOutcome
from gapless.sweeps.local import Task
from gapless.sweeps.question import Given, limits_of
from gapless.sweeps.results import Row as Known
from gapless.sweeps.run import answers, known_rows
from gapless.sweeps.solving import Work
from gapless.sweeps.summary import SUMMARY_JSON, table_files, write_table
from gapless.sweeps.sweep_file import Value
from gapless.system import Answer, Session
from gapless.units import format_bytes

__all__ = ["answer", "sweep"]

XML_FOLDER = "xml"
_PIPELINED = 2
"""At each size, so many of the fastest plans are tried in pieces, twice as many as long as that is faster."""
_BASELINES_SHARE = 0.5
"""The part of the time limit for baselines: there must be time to synthesise."""
_AFTER_SHARE = 0.1
"""The part of the time limit that is kept for choosing, and for writing files."""
_MOST_PIECES = 64
_MOST_TRANSFERS = 40_000
_MORE_TIME = 1.5
"""A plan whose synthesis ran out of time is tried again where it would get this many times as long."""


@dataclass
class _Sweep:
    """What is asked, and what is known by now: results by job, the rest by size."""

    request: Request
    options: SolveOptions
    folder: Path
    deadline: Deadline
    questions: dict[Job, Given]
    times: Times
    lowering: Lowering
    rows: dict[Job, Known] = field(default_factory=dict)
    candidates: dict[Job, Candidate] = field(default_factory=dict)
    baselines: dict[int, list[Candidate]] = field(default_factory=dict)
    pipelines: dict[int, list[Candidate]] = field(default_factory=dict)
    begin_s: float = field(default_factory=time.monotonic)

    def fastest_s(self, candidate: Candidate, size_bytes: int) -> float:
        """What a candidate takes with its best number of instances."""
        return min(self.times.makespan_s(candidate, size_bytes, number) for number in self.request.instances)

    def report(self, progress: Progress) -> None:
        """Report to the caller what is done, in seconds since the sweep began."""
        if self.options.on_progress is not None:
            self.options.on_progress(replace(progress, wall_s=time.monotonic() - self.begin_s))

    def is_final(self, row: Known) -> bool:
        """Whether a plan will do: not if it was interrupted, or would get much more time now."""
        if row.plan is None or row.is_interrupted:
            return False
        limit_s = self.options.time_limit_s
        share_s = math.inf if limit_s is None else limit_s / len(self.questions)
        may_gain = share_s >= _MORE_TIME * (row.solve_s or 0.0)
        return row.stop_reason != StopReason.TIME_LIMIT.value or not may_gain

    @property
    def done(self) -> int:
        """How many jobs have a plan that will do."""
        return sum(self.is_final(row) for row in self.rows.values())


@dataclass(frozen=True)
class _EvenShares:
    """The engine: one after the other in this process, each with an even share of the time that is left."""

    questions: Sequence[Given]
    deadline: Deadline

    def check(self) -> None:
        """See `Engine`."""

    def run(self, tasks: Sequence[Task], folder: Path, stop: threading.Event) -> Iterator[tuple[int, SweepOutcome]]:
        """See `Engine`; raises what a solve raises."""
        for number, task in enumerate(tasks):
            if self.deadline.over:
                return
            stage = self.deadline.stage(self.deadline.remaining_s / (len(tasks) - number))
            question = replace(self.questions[task.place], limits=limits_of(stage))
            yield task.place, Work(question, folder, stage.threads)(stop)


def sweep(request: Request, options: SolveOptions, folder: str | Path) -> Outcome:
    """Synthesise a plan for every size that has none in `folder` yet, then choose for every size and write the files.

    `options`: the time limit is for all sizes together, half of it for the synthesis in any case; the gap for each.
    `stop` ends the synthesis: what is there is chosen from. The folder is made if it isn't there, and gets a plan file
    for each size, `xml/` with a program for each range of sizes, and the table as `summary.csv` and `summary.json`.
    Programs of an earlier sweep that are no longer wanted are removed. A baseline that beats every plan at a size
    serves it.

    Raises `InputError` for a folder that can't be written to, and for what `Chunked` refuses.
    """
    make_folder(Path(folder) / XML_FOLDER)
    questions = _questions(request, options)
    state = _Sweep(request, options, Path(folder), Deadline(options), questions, Times(request), Lowering(request))
    known = known_rows(list(questions.values()), state.folder)
    state.rows = {job: known[place] for place, job in enumerate(questions) if place in known}
    state.deadline.keep(_AFTER_SHARE * (options.time_limit_s or 0.0))
    wholes = [Chunked(machine, request.definition, 1) for machine in request.machines]
    rates = [bounds_of(whole, request.parameters.bounds, state.deadline.stage()).s_per_byte for whole in wholes]
    _find_baselines(state)
    _synthesise(state)
    _pipeline(state)
    return _write(state, rates)


def answer(question: SweepQuestion, session: Session) -> Answer:
    """Sweep, and what came of it as data and as tables."""
    asked = replace(request_of(question), parameters=parameters_of(Parameters, session.parameters))
    folder = Path(question.output)
    outcome = sweep(asked, session.options, folder)
    data = {
        "problem": "taccl", "collective": asked.collective, **table_files(folder), "complete": outcome.is_complete,
        **outcome.data,
    }  # fmt: skip
    return Answer(data, text_of(outcome), notes_of(outcome), outcome.is_complete)


def _questions(request: Request, options: SolveOptions) -> dict[Job, Given]:
    """The synthesis of each job; the hash holds all that a plan depends on, but for its threads and time limit."""
    keys = [request.key(options, number) for number in range(len(request.sketches))]
    questions = {}
    for job in request.jobs:
        size, parts, number = job
        sketch = request.sketch_name(number)
        title = format_bytes(size) + ("" if parts == 1 else f" in {parts} parts")
        title += f" under {sketch}" if len(keys) > 1 and sketch else ""
        values: dict[str, Value] = {"size": size, "parts": parts, **({} if sketch is None else {"sketch": sketch})}
        name = f"{request.collective}-{size}-{parts}-{keys[number]}"
        problem, limits = request.problem(*job), limits_of(options)
        questions[job] = Given(problem, limits, name, title, values, parameters=request.parameters)
    return questions


# -- candidates --------------------------------------------------------------------------------------------------------


def _find_baselines(state: _Sweep) -> None:
    """The baselines of every size, in the variants that are fastest with the fewest and with the most instances.

    Sizes that half of the time doesn't reach do with those of their neighbours.
    """
    request = state.request
    definition = request.definition
    known: dict[tuple[str, bytes], Candidate] = {}
    library = Baselines(request.topology, definition)
    stage = Deadline(state.deadline.stage(_BASELINES_SHARE * state.deadline.remaining_s))
    for size in dict.fromkeys(size for size, *_ in request.jobs):  # the ends of the range first
        if stage.over:
            return
        found_here = state.baselines.setdefault(size, [])
        for instances in sorted({request.instances[0], request.instances[-1]}):
            topology = with_instances(request.topology, instances, request.costs)
            chunk_bytes = -(-size // larger_buffer(definition))
            for found in library.of_size(chunk_bytes, topology, is_over=lambda: stage.over):
                title = f"{found.name} ({found.variant})"
                plain = replace(found.schedule, topology=request.topology)  # its times are of other instances
                made = Candidate(title, found.collective, plain, True)
                candidate = known.setdefault((title, np.sort(found.schedule.place).tobytes()), made)
                if candidate not in found_here:
                    found_here.append(candidate)
        fastest_s = min((state.fastest_s(candidate, size) for candidate in found_here), default=None)
        phase, total = f"{format_bytes(size)}: baselines", len(state.questions)
        state.report(Progress(0.0, fastest_s, None, phase, done=state.done, total=total))


def _synthesise(state: _Sweep) -> None:
    """Find a plan for every job that has none which will do, and make candidates of all."""
    questions = list(state.questions.values())
    engine = _EvenShares(questions, state.deadline)
    found = answers(questions, state.folder, engine, state.report, state.options.stop, state.is_final)
    state.rows = dict(zip(state.questions, found, strict=True))
    for job, row in state.rows.items():
        if row.plan is not None:
            state.candidates[job] = _candidate(state, job, state.folder / row.plan)


def _candidate(state: _Sweep, job: Job, path: Path) -> Candidate:
    """The plan of a job; where there are several sketches, its name ends in its own."""
    size, parts, number = job
    sketch, saved = state.request.sketch_name(number), read_plan(path)
    name = f"plan-{format_bytes(size).replace(' ', '')}" + (f"-{parts}" if parts > 1 else "")
    name += f"-{sketch}" if len(state.request.sketches) > 1 and sketch else ""
    return Candidate(name, collective_of(saved.problem, str(path)), saved.schedule, False, sketch)


def _pipeline(state: _Sweep) -> None:
    """Find the best numbers of pieces for the fastest plans of each size."""
    known: dict[tuple[Candidate, int], Candidate] = {}
    for size in state.request.sizes_bytes:
        if state.deadline.over:
            return
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


# -- the choice, and its files -----------------------------------------------------------------------------------------


def _write(state: _Sweep, rates: list[float]) -> Outcome:
    """`rates`: for each machine the seconds for each byte that no plan can beat."""
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
    rows = [
        _row(state, place, choices[place], chosen[place] if chosen else None, xml_of.get(size), rates)
        for place, size in enumerate(sizes)
    ]
    served = [
        Served(name, one.choice[0].name, one.choice[1], one.min_bytes, one.max_bytes, list(one.sizes_bytes))
        for name, one in zip(files, ranges, strict=True)
    ]
    refused = [Refused(*what, reason) for what, reason in state.lowering.refused.items()]
    outcome = Outcome(rows, served, refused, state.done == len(state.rows) and bool(ranges))
    head = {
        "format": FORMAT, "version": VERSION, "collective": request.collective, "topology": request.topology.name,
        "ranks": request.topology.device_count,
    }  # fmt: skip
    data = outcome.data
    columns = [column.name for column in fields(Row) if column.name != "tried"]
    flat = [{name: row[name] for name in columns} for row in data["rows"]]
    write_table(state.folder, columns, flat, {**head, **data})
    return outcome


def _choices(state: _Sweep, place: int) -> list[Choice]:
    """What may serve a size: all plans, and the pipelines and baselines of this size and its neighbours."""
    sizes = state.request.sizes_bytes[max(place - 1, 0) : place + 2]
    near = [other for found in (state.pipelines, state.baselines) for size in sizes for other in found.get(size, [])]
    candidates = dict.fromkeys([*state.candidates.values(), *near])
    return [(candidate, instances) for candidate in candidates for instances in state.request.instances]


def _row(
    state: _Sweep, place: int, choices: list[Choice], chosen: Choice | None, xml: str | None, rates: list[float]
) -> Row:
    request, size = state.request, state.request.sizes_bytes[place]
    chunk_bytes = -(-size // larger_buffer(request.definition))
    questions = [Chunked(machine, request.definition, chunk_bytes) for machine in request.machines]
    bound_s = min(
        bounds_of(question, s_per_byte=rate).any_chunking_s for question, rate in zip(questions, rates, strict=True)
    )
    found = [_fastest(state, size, choices, is_baseline) for is_baseline in (False, True)]
    names = [(None, None) if one is None else (one[0].name, one[1]) for one in (*found, chosen)]
    (synthesised, synthesised_x), (baseline, baseline_x), (plan, instances) = names
    times_s = [None if one is None else state.times.checked_s(one[0], size, one[1]) for one in (*found, chosen)]
    synthesised_s, baseline_s, makespan_s = times_s
    plans = [row for job, row in state.rows.items() if job[0] == size and row.plan is not None]
    return Row(
        size_bytes=size,
        plan=plan,
        sketch=None if chosen is None else chosen[0].sketch,
        instances=instances,
        makespan_s=makespan_s,
        algbw_bytes_per_s=None if not makespan_s else size / makespan_s,
        bound_s=bound_s,
        ratio_to_bound=_ratio(makespan_s, bound_s),
        baseline=baseline,
        baseline_instances=baseline_x,
        baseline_s=baseline_s,
        ratio_to_baseline=_ratio(makespan_s, baseline_s),
        synthesised=synthesised,
        synthesised_instances=synthesised_x,
        synthesised_s=synthesised_s,
        synthesised_ratio=_ratio(synthesised_s, baseline_s),
        xml=xml,
        solve_s=sum(row.solve_s or 0.0 for row in plans) if plans else None,
        stop_reason=", ".join(dict.fromkeys(row.stop_reason for row in plans if row.stop_reason)) or None,
        tried=_tried(state, size, choices),
    )


def _tried(state: _Sweep, size_bytes: int, choices: list[Choice]) -> dict[str, Tried]:
    """All choices of a size by name, each with its best number of instances, the fastest first."""
    found: dict[str, Tried] = {}
    for makespan_s, candidate, instances in sorted(
        ((state.times.makespan_s(candidate, size_bytes, number), candidate, number) for candidate, number in choices),
        key=lambda each: (each[0], each[1].name),
    ):
        found.setdefault(candidate.name, Tried(candidate.sketch, candidate.is_baseline, instances, makespan_s))
    return found


def _fastest(state: _Sweep, size_bytes: int, choices: list[Choice], is_baseline: bool) -> Choice | None:
    """The fastest choice of one kind."""
    fitting = (choice for choice in choices if choice[0].is_baseline == is_baseline)
    return min(fitting, key=lambda choice: state.times.makespan_s(choice[0], size_bytes, choice[1]), default=None)


def _ratio(time_s: float | None, other_s: float | None) -> float | None:
    return time_s / other_s if time_s is not None and other_s else None


def _file_name(request: Request, number: int, one: Range) -> str:
    """Numbered by range, since the runtimes take the first that fits, by name."""
    what = re.sub(r"[^A-Za-z0-9.]+", "-", one.choice[0].name.split(" (")[0]).strip("-")
    return f"{number:03d}-{request.collective}-{request.topology.device_count}-{what}-x{one.choice[1]}.xml"


def _remove_old(folder: Path, wanted: set[str]) -> None:
    """Remove the programs that an earlier sweep wrote into the folder, as its summary lists them."""
    try:
        names = [one.raw("xml") for one in load_record(folder / SUMMARY_JSON).records("ranges")]
    except (ValueError, LookupError, TypeError):
        return
    for name in names:
        if isinstance(name, str) and re.fullmatch(r"\d{3}-[A-Za-z0-9.-]+\.xml", name) and name not in wanted:
            (folder / XML_FOLDER / name).unlink(missing_ok=True)
