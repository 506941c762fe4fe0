"""Candidates: for each cell, the plan that is solved for it, those of its neighbours, and the libraries' algorithms."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gapless import __version__
from gapless.checker import check
from gapless.encodings.taccl.baselines.library import Baselines
from gapless.encodings.taccl.chunked import Chunked, claim
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.programs.export import topology_among
from gapless.encodings.taccl.solve import solve
from gapless.encodings.taccl.tuning.requests import Request, whole
from gapless.errors import InputError
from gapless.io.formats.collective_file import collective_of
from gapless.io.plan import SavedPlan, claim_data, plan_text
from gapless.ir.collective import Collective
from gapless.ir.simulate import retime
from gapless.options import Deadline, SolveOptions
from gapless.topologies.topology import Topology
from gapless.units import format_bytes

__all__ = ["Candidates", "Entrant", "find_candidates", "topology_of"]

_BASELINES = 2
"""Of the libraries' algorithms, so many are tried in a cell: those that are predicted to be the fastest."""
_PLANS = 6
"""So many are tried in a cell, the one that is solved for it among them."""
_HOPEFUL = 3.0
"""What is predicted to take so many times as long as the fastest in its cell isn't tried there."""
_MOST_TRANSFERS = 45_000
"""Of the libraries' algorithms, after which no more pieces of a pipeline are looked at."""


@dataclass(frozen=True)
class Entrant:
    """A plan in a cell: its number among all plans, and what its replay predicts there."""

    plan: int
    predicted_s: float


@dataclass(frozen=True)
class Candidates:
    """Plans as texts of plan files, what made each, and those that are tried in each cell, the fastest first."""

    texts: tuple[str, ...]
    made_by: tuple[str, ...]
    cells: tuple[tuple[Entrant, ...], ...]

    def packed(self) -> bytes:
        """For the other ranks."""
        return json.dumps(asdict(self)).encode("utf-8")

    @classmethod
    def unpacked(cls, data: bytes) -> Candidates:
        """What `packed` gave."""
        found = json.loads(data)
        cells = tuple(tuple(Entrant(**entrant) for entrant in cell) for cell in found["cells"])
        return cls(tuple(found["texts"]), tuple(found["made_by"]), cells)

    def write(self, folder: Path) -> list[Path]:
        """The plan files, by number."""
        paths = [folder / f"plan{number}.json" for number in range(len(self.texts))]
        for path, text in zip(paths, self.texts, strict=True):
            path.write_text(text, "utf-8")
        return paths


@dataclass(frozen=True, eq=False)
class _Plan:
    """A schedule and the collective that it carries out, in its chunks."""

    made_by: str
    saved: SavedPlan
    collective: Collective

    def at(self, size_bytes: int) -> float:
        """What it is predicted to take for input buffers of another size."""
        chunk_bytes = -(-size_bytes // max(map(len, self.collective.inputs)))
        schedule = self.saved.schedule
        sizes = np.full(self.collective.chunk_count, chunk_bytes, dtype=np.int64)
        return float(retime(schedule, schedule.topology, sizes).end_s.max(initial=0.0))


def topology_of(topology: Topology, ranks: Sequence[int]) -> Topology:
    """The ranks of a group and the links among them, numbered by their places in it."""
    return topology if list(ranks) == list(range(topology.device_count)) else topology_among(topology, ranks)[0]


def find_candidates(
    topology: Topology, requests: Sequence[Request], options: SolveOptions, parameters: Parameters,
    say: Callable[[str], None],
) -> Candidates:  # fmt: skip
    """Solve for every cell, each with an even share of the time that is left.

    Raises `InputError` where a group isn't connected by itself.
    """
    deadline = Deadline(options)
    solved: list[list[_Plan]] = []
    for number, request in enumerate(requests):
        stage = deadline.stage(deadline.remaining_s / (len(requests) - number))
        say(f"planning {_title(request)} ...")
        solved.append(_of_request(topology, request, stage, parameters))
    known: dict[int, int] = {}
    plans: list[_Plan] = []

    def number_of(plan: _Plan) -> int:
        if id(plan) not in known:
            known[id(plan)] = len(plans)
            plans.append(plan)
        return known[id(plan)]

    cells = []
    for place, request in enumerate(requests):
        near = [
            plan
            for other in (place, place - 1, place + 1)
            if 0 <= other < len(requests) and replace(requests[other], size_bytes=request.size_bytes) == request
            for plan in solved[other]
        ]
        cells.append(_entrants(near, request, number_of))
    return Candidates(
        tuple(plan_text(plan.saved) for plan in plans), tuple(plan.made_by for plan in plans), tuple(cells)
    )


def _title(request: Request) -> str:
    return f"{request.collective} of {format_bytes(request.size_bytes)} among {len(request.ranks)} ranks"


def _entrants(near: Sequence[_Plan], request: Request, number_of: Callable[[_Plan], int]) -> tuple[Entrant, ...]:
    """The plan for the cell, and of the others those that are predicted to be the fastest there."""
    predicted = {id(plan): plan.at(request.size_bytes) for plan in near}
    best_s = min(predicted.values(), default=0.0)
    own, *others = near
    hopeful = sorted(
        (plan for plan in others if predicted[id(plan)] <= _HOPEFUL * best_s), key=lambda plan: predicted[id(plan)]
    )
    tried = [own, *hopeful[: _PLANS - 1]]
    tried.sort(key=lambda plan: predicted[id(plan)])
    return tuple(Entrant(number_of(plan), predicted[id(plan)]) for plan in tried)


def _of_request(topology: Topology, request: Request, options: SolveOptions, parameters: Parameters) -> list[_Plan]:
    """The plan that is solved for it, then the libraries' algorithms."""
    machine = topology_of(topology, request.ranks)
    problem = Problem(machine, request.collective, request.size_bytes)
    plan = solve(problem, options, parameters)
    found = []
    if plan.schedule is not None:
        asked = plan.problem or problem
        saved = SavedPlan(
            "taccl", asked.description, claim_data(plan.solution), plan.details, plan.schedule, {},
            decision={} if plan.decision is None else plan.decision.data,
        )  # fmt: skip
        if not check(plan.schedule).valid:
            raise InputError(f"{_title(request)}: its plan doesn't replay clean")
        found.append(_Plan(f"plan for {format_bytes(request.size_bytes)}", saved, collective_of(saved.problem, "plan")))
    return found + _baselines(machine, request, options)


def _baselines(machine: Topology, request: Request, options: SolveOptions) -> list[_Plan]:
    """The libraries' algorithms that are predicted to be the fastest."""
    collective = whole(request.collective, len(request.ranks))
    chunk_bytes = request.size_bytes // max(map(len, collective.inputs))
    library, deadline = Baselines(machine, collective), Deadline(options)
    all_of_them = library.of_size(chunk_bytes, most_transfers=_MOST_TRANSFERS)
    found = []
    for baseline in sorted(all_of_them, key=lambda one: one.makespan_s)[:_BASELINES]:
        problem = Chunked(machine, baseline.collective, baseline.chunk_bytes)
        solution = claim(baseline.makespan_s, 0.0, baseline.name, __version__, options, deadline)
        saved = SavedPlan("taccl", problem.description, claim_data(solution), {}, baseline.schedule, {})
        if check(baseline.schedule).valid:
            found.append(_Plan(f"{baseline.name} ({baseline.variant})", saved, baseline.collective))
    return found
