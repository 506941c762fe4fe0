"""`gapless tune`: measure the links, plan for every cell, run plans and library in turn, keep what wins twice.

Every rank of a launcher does this; rank 0 plans, and writes the folder. All know what was measured, and so agree on
what is measured again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.programs.profiling import profile_links
from gapless.encodings.taccl.question import LinksQuestion
from gapless.encodings.taccl.tuning.candidates import Candidates, find_candidates, topology_of
from gapless.encodings.taccl.tuning.folder import check_folder, write_outcome
from gapless.encodings.taccl.tuning.outcome import Measured, hopeful, outcome_of, text_of
from gapless.encodings.taccl.tuning.question import TuneQuestion
from gapless.encodings.taccl.tuning.requests import Request, requests_of
from gapless.encodings.taccl.tuning.winners import Contest
from gapless.errors import InputError, RunError
from gapless.io.formats.tuned_file import Table
from gapless.io.text_file import load_text
from gapless.io.typed import data_of
from gapless.options import Deadline
from gapless.processes.exit import temporary_folder
from gapless.question.parameters import parameters_of
from gapless.system import Answer, Session
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.torch.collectives.contest import CellTimes

__all__ = ["tune"]

_SLACK = 10.0
"""So many times what is predicted may a call take before a rank is thought to hang."""
_IN_ALL = 5.0
"""A tenth of what all calls take is what a rank may wait, at least; twice that, to be sure."""
_LATE = 2.0
"""So many times what is left of the time limit do ranks wait for rank 0's plans, and as long as for a call."""
_PROFILE_S = 60.0
"""For measuring the links, where there is no time limit."""


@dataclass(frozen=True)
class _Machine:
    """The topology, numbered as the ranks are here, and the text of the file that it was written to when measured."""

    topology: Topology
    text: str


def tune(question: TuneQuestion, session: Session) -> Answer:
    """The table; the folder is written by rank 0. Needs the extra `torch`. Raises `RunError` where a rank fails.

    The time limit is for links and plans; what is run beside the library takes as long as its calls do.
    """
    from gapless.torch.processes import check_backend

    check_folder(question.output)
    check_backend(question.backend)
    ranks = _ranks(question, session)
    requests = requests_of(question, ranks)
    profile_s = _profile_s(question, session)
    deadline = Deadline(session.options)
    with temporary_folder("gapless-tune-") as name:
        folder = Path(name)
        machine = _machine(question, session, ranks, folder, profile_s)
        candidates = _planned(machine, requests, session, deadline, question.wait)
        paths = candidates.write(folder)
        tried = [tuple(entrant.plan for entrant in cell) for cell in candidates.cells]
        session.say(f"running {len(paths)} plans in {len(requests)} cells beside {question.backend} ...")
        first = _contest(question, session, ranks, requests, candidates, paths, tried)
        kept = hopeful(first, session.options.seed)
        session.say(f"running {sum(map(len, kept))} that were faster once more ...")
        second = _contest(question, session, ranks, requests, candidates, paths, kept)
    head = Table(
        datetime.now(timezone.utc).isoformat(timespec="seconds"), question.backend, ranks, question.repeats,
        machine.topology.name,
    )  # fmt: skip
    measured = Measured(tuple(first), tuple(second))
    outcome = outcome_of(requests, candidates, measured, head, session.options.seed)
    refused = write_outcome(question.output, outcome, machine.text) if session.is_first else []
    wrong = [
        f"{request.collective} of {format_bytes(request.size_bytes)}: plan {candidates.made_by[plan]} is wrong"
        for request, contest in zip(requests, first, strict=True)
        for plan in contest.wrong
    ]
    won = sum(row.winner is not None for row in outcome.table.rows)
    data = {**data_of(outcome.table), "selector": data_of(outcome.selector), "output": question.output}
    text = f"{text_of(outcome.table)}\n{won} of {len(requests)} cells are served by plans: {question.output}"
    return Answer(data, text, (*wrong, *refused), is_valid=not wrong)


def _ranks(question: TuneQuestion, session: Session) -> int:
    """As many as a launcher has started, or as the topology has, or as are asked for."""
    if session.ranks is not None:
        there = session.ranks.launch.ranks
        if question.ranks not in (None, there):
            raise InputError(f"ranks: the launcher has started {there}, got {question.ranks}; leave it out")
        return there
    if question.backend == "mpi":
        raise InputError("backend: mpi takes ranks that its launcher has started, which sets RANK and WORLD_SIZE")
    if _is_given(question):
        there = _given(question).device_count
        if question.ranks not in (None, there):
            raise InputError(f"ranks: must be left out with a topology of {there} ranks, got {question.ranks}")
        return there
    return 2 if question.ranks is None else question.ranks


def _profile_s(question: TuneQuestion, session: Session) -> float:
    """Seconds for the links: some of the time limit."""
    limit_s, asked_s = session.options.time_limit_s, question.profile_time
    if asked_s is None:
        return _PROFILE_S if limit_s is None else limit_s / 2
    if limit_s is not None and asked_s >= limit_s and not _is_given(question):
        rule = f"must be less than the time limit of {limit_s:g} s, which is for plans too"
        raise InputError(f"profile_time: {rule}, got {asked_s:g}")
    return asked_s


def _is_given(question: TuneQuestion) -> bool:
    return question.topology is not None or question.topology_file is not None


def _given(question: TuneQuestion) -> Topology:
    found = question.topology
    if not isinstance(found, Topology):
        found = load_topology(found, question.nodes, question.topology_file, 1)
    return found.without_switch_groups()  # what runs here is sent from rank to rank


def _machine(question: TuneQuestion, session: Session, ranks: int, folder: Path, profile_s: float) -> _Machine:
    """What is given, or measured now; only rank 0 looks at what was measured."""
    if _is_given(question):
        topology = _given(question)
        if topology.device_count != ranks:
            raise InputError(f"topology_file: must be of the {ranks} ranks here, got {topology.device_count}")
        return _Machine(topology, "")
    path = folder / "topology.json"
    asked = LinksQuestion(
        ranks=None if session.ranks is not None else ranks, backend=question.backend,
        time_limit=profile_s, wait=question.wait, output=str(path),
    )  # fmt: skip
    found = profile_links(asked, session)
    order = found.data.get("order")
    if not isinstance(order, list):
        about = f" of {found.data['needed_s']} s or so" if found.data["needed_s"] else ""
        longer = f"give a longer --profile-time{about}, and as much more --time-limit, or a --topology-file"
        raise RunError(f"{found.text} in {profile_s:g} s; {longer}")
    if not session.is_first:
        return _Machine(Topology("measured", (0,) * ranks), "")
    topology = load_topology(None, None, str(path), 1)
    return _Machine(topology_of(topology, [order.index(rank) for rank in range(ranks)]), load_text(path))


def _planned(
    machine: _Machine, requests: Sequence[Request], session: Session, deadline: Deadline, wait_s: float
) -> Candidates:
    """The candidates that rank 0 finds in what is left of the time, on all ranks."""

    def made() -> Candidates:
        parameters = parameters_of(Parameters, session.parameters)
        return find_candidates(machine.topology, requests, deadline.stage(), parameters, session.say)

    if session.ranks is None:
        return made()
    limit_s = _LATE * deadline.remaining_s + wait_s
    return Candidates.unpacked(session.ranks.from_first(lambda: made().packed(), limit_s, session.options.stop))


def _contest(
    question: TuneQuestion, session: Session, ranks: int, requests: Sequence[Request], candidates: Candidates,
    paths: Sequence[Path], plans: Sequence[tuple[int, ...]],
) -> list[Contest]:  # fmt: skip
    """What the ranks find of the plans of each cell; a cell without plans is left out, unless all are."""
    from gapless.torch.collectives.contest import Cell, ContestTask, run_contest

    places = [place for place, tried in enumerate(plans) if tried]
    found: list[Contest] = [Contest({}, ((), ())) for _ in requests]
    if not places:
        return found
    used = sorted({plan for place in places for plan in plans[place]})
    number = {plan: k for k, plan in enumerate(used)}
    cells = tuple(
        Cell(one.collective, one.ranks, one.size_bytes, tuple(number[plan] for plan in plans[place]))
        for place, one in enumerate(requests)
        if plans[place]
    )
    task = ContestTask(
        ranks, cells, question.repeats, question.hopeless, session.options.seed, _wait_s(question, candidates),
        question.backend,
    )  # fmt: skip
    times = run_contest([paths[plan] for plan in used], task, session.options.stop, session.ranks)
    for place, of_cell in zip(places, times, strict=True):
        found[place] = _seen(of_cell, plans[place])
    return found


def _seen(times: CellTimes, plans: Sequence[int]) -> Contest:
    """The times of a cell by the numbers of all plans."""
    of_plans = {plan: times.plan_s[k] for k, plan in enumerate(plans)}
    return Contest(of_plans, times.library_s, tuple(plan for k, plan in enumerate(plans) if times.wrong[k]))


def _wait_s(question: TuneQuestion, candidates: Candidates) -> float:
    """What a rank may wait for another: as long as a cell may take in which it has no part."""
    cells_s = [
        _SLACK * max(entrant.predicted_s for entrant in cell) * (len(cell) + 2) * (question.repeats + 1)
        for cell in candidates.cells
        if cell
    ]
    return max(question.wait, max(cells_s, default=0.0), sum(cells_s) / _IN_ALL)
