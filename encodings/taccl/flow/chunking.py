"""Chunking: into how many chunks a rank's data are best cut, where nobody says it.

Few chunks pay few latencies, many let a rank hand on the beginning of what it is still receiving, and share out over
unlike links and several paths. Which weighs more depends on size and machine, so numbers are tried with the greedy: a
few small ones, those that the bandwidth bound and the longest path name, then ones between and beyond the best, as long
as the bound says that something is left to gain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from gapless.collective import Collective
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.milp.routers import milp_binaries
from gapless.encodings.taccl.parameters import Chunking, Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.options import Deadline, SolveOptions
from gapless.process_groups import Groups
from gapless.system import Plan

__all__ = ["Quick", "best_chunking"]


@dataclass(frozen=True)
class Quick:
    """A number of chunks with what the greedy makes of it in a moment, None where it was not asked.

    `bounds`: those of plans in so many chunks.
    """

    problem: Chunked
    plan: Plan | None = None
    bounds: Bounds | None = None

    @property
    def end_s(self) -> float:
        """When the plan is over, inf without one."""
        end_s = None if self.plan is None else self.plan.solution.objective
        return math.inf if end_s is None else end_s


def best_chunking(problem: Problem, bounds: Bounds, options: SolveOptions, parameters: Parameters) -> Quick:
    """The problem in the number of chunks with which the greedy is fastest, and that plan. `bounds`: of the question.

    Where the MILP is to follow, since no number is proven within the gap that was asked for, numbers that are nearly as
    good are as good, and it is the largest that the MILP takes easily, with half of its binaries. In as few chunks as
    there can be where a plan has more sends than the parameters allow, and for a collective of one's own.
    """
    if isinstance(problem.collective, Collective) or problem.topology.device_count < 2:
        return Quick(problem.coarsest)
    search = _Search(problem, bounds, Deadline(options), options, parameters)
    if search.most < 2:
        return Quick(problem.coarsest if search.most < 1 else problem.in_chunks(1))
    search.run()
    if not search.found:
        return Quick(problem.coarsest)
    fastest = search.found[search.best]
    if fastest.end_s - bounds.asked_s <= options.gap * fastest.end_s:
        return fastest
    near_s = (1 + parameters.chunking.near) * fastest.end_s
    near = [quick for _, quick in sorted(search.found.items()) if quick.end_s <= near_s]
    for_milp = [quick for quick in near if 2 * milp_binaries(quick.problem) <= parameters.milp.most_binaries]
    return for_milp[-1] if for_milp else fastest


@dataclass
class _Search:
    """What is known so far: `found[n]` is the greedy's plan in n chunks."""

    problem: Problem
    bounds: Bounds
    deadline: Deadline
    options: SolveOptions
    parameters: Parameters

    def __post_init__(self) -> None:
        self.found: dict[int, Quick] = {}
        coarsest, chunking = self.problem.coarsest.collective, self.parameters.chunking
        groups = self.problem.collective
        among = groups.most_ranks if isinstance(groups, Groups) else self.problem.topology.device_count
        sends = coarsest.chunk_count * among
        self.most = min(chunking.most_sends // sends, self.problem.size_bytes // max(map(len, coarsest.inputs)))

    @property
    def best(self) -> int:
        """The number whose plan is the fastest; of equals the smallest."""
        return min(self.found, key=lambda number: (self.found[number].end_s, number))

    @property
    def is_over(self) -> bool:
        """Whether the best plan needs no better number, or there is no time for one."""
        if self.deadline.over or len(self.found) >= self.parameters.chunking.most_numbers:
            return True
        if not self.found:
            return False
        end_s = self.found[self.best].end_s
        return end_s - self.bounds.asked_s <= self.parameters.chunking.gap * end_s

    def run(self) -> None:
        """Numbers that are promising, in ascending order, until they are clearly worse; then those around the best."""
        chunking = self.parameters.chunking
        for number in _promising(self.problem, self.bounds, chunking, self.most):
            if self.is_over:
                return
            best_s = self.found[self.best].end_s if self.found else math.inf
            if self._attempt(number) > chunking.give_up_factor * best_s:
                break
        without = 0
        while self.found and without < chunking.patience and not self.is_over:
            beside = self._beside_the_best()
            if beside is None:
                return
            best_s = self.found[self.best].end_s
            without = 0 if self._attempt(beside) < best_s * (1 - chunking.least_gain) else without + 1

    def _attempt(self, number: int) -> float:
        """When the greedy's plan in so many chunks is over, inf without one."""
        cut = self.problem.in_chunks(number)
        greedy = replace(self.parameters.greedy, rows=self.parameters.chunking.rows)
        stage = self.deadline.stage()
        quick = replace(stage, gap=self.parameters.chunking.gap, on_progress=None)
        cheap = replace(cut, method="greedy", path_slack=None)
        bounds = bounds_of(cheap, self.parameters.bounds, stage)
        made = Quick(cut, plan_greedy(cheap, quick, greedy, self.parameters.chunking.tries, bounds), bounds)
        if math.isfinite(made.end_s):
            self.found[number] = made
        return made.end_s

    def _beside_the_best(self) -> int | None:
        """A number between the best and the next that was tried, on the side of the better; None if none is left."""
        below = [number for number in self.found if number < self.best]
        above = [number for number in self.found if number > self.best]
        sides = [(self.found[min(above)].end_s, _between(self.best, min(above)))] if above else [(0.0, 2 * self.best)]
        if below:
            sides.append((self.found[max(below)].end_s, _between(max(below), self.best)))
        fresh = [number for _, number in sorted(sides) if number not in self.found and 1 <= number <= self.most]
        return fresh[0] if fresh else None


def _between(low: int, high: int) -> int:
    """The number in the middle, by ratio."""
    return max(low + 1, min(round(math.sqrt(low * high)), high - 1))


def _promising(problem: Problem, bounds: Bounds, chunking: Chunking, most: int) -> list[int]:
    """A few small numbers, and what bandwidth and latency name, ascending.

    Bandwidth: where its bound is p/q times what all data of a rank take on the fastest link, they must be cut in q
    pieces for links to be busy without a break. Latency: of n pieces that are handed on over h links the last one is
    there after about n messages on the busiest link and h - 1 more, which is least for sqrt((h - 1) T / (alpha m)), T
    being the time of all data on the fastest link, and m how many times that the busiest link needs.
    """
    topology, sources_s = problem.topology, bounds.any_chunking
    data_s = float(topology.beta_s_per_byte.min()) * problem.size_bytes
    least_s = max(sources_s["bandwidth"], sources_s["cuts"] - sources_s["latency"])
    named = set(chunking.numbers)
    if data_s > 0 and least_s > 0:
        share = Fraction(sources_s["bandwidth"] / data_s).limit_denominator(chunking.most_pieces)
        if share and abs(float(share) * data_s - sources_s["bandwidth"]) <= 1e-9 * least_s:
            named.add(share.denominator)
        alpha_s = float(topology.alpha_s.min())
        if alpha_s > 0:
            further = max(sources_s["latency"] / alpha_s - 1, 0.0)
            named.add(round(math.sqrt(further * data_s / (alpha_s * least_s / data_s))))
    return sorted(number for number in named if 1 <= number <= min(most, chunking.most_pieces))
