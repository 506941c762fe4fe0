"""Chunking: into how many chunks a rank's data are best cut, where nobody says it.

Few chunks pay few latencies, many let a rank hand on the beginning of what it is still receiving, and share out over
unlike links and several paths. Which weighs more depends on size and machine, so numbers are tried with the greedy: a
few small ones, those that the bandwidth bound and the longest path name, then ones between and beyond the best, as long
as the bound says that something is left to gain. Without symmetry an order has many sends; there each number is tried
briefly, which says nearly as much; a plan that is near enough is made again with all of the work. Matchings with
restarts take other numbers, so they are tried with those around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import numpy as np

from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import FEW_PAIRS, Chunked
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.flow.restarts import matched_plan
from gapless.encodings.taccl.parameters import Chunking, Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.symmetry.quotient import rotations_of
from gapless.ir.collective import Collective
from gapless.ir.process_groups import Groups
from gapless.methods.ledger import charge
from gapless.options import Deadline, SolveOptions

__all__ = ["Quick", "best_chunking", "best_matching"]

_FEW_SENDS = 100
"""Sends of an order up to which hundreds of orders take a moment."""


@dataclass(frozen=True)
class Quick:
    """A number of chunks with what a method makes of it in a moment, None where it was not asked.

    `bounds`: those of plans in so many chunks. `for_milp`: the problem in as many chunks as the MILP is to take.
    `least_s`: a bound for the method's plans that is no better than a plan in another number of chunks. `ends_s[n]`:
    when the method's plan in n chunks is over, or a bound for it, of the numbers that were tried, where that is slow.
    """

    problem: Chunked
    plan: Candidate | None = None
    bounds: Bounds | None = None
    for_milp: Chunked | None = None
    least_s: float = math.inf
    ends_s: Mapping[int, float] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """When the plan is over, inf without one."""
        return math.inf if self.plan is None else self.plan.end_s


@charge("chunking")
def best_chunking(problem: Problem, bounds: Bounds, options: SolveOptions, parameters: Parameters) -> Quick:
    """The problem in the number of chunks with which the greedy is fastest, and that plan. `bounds`: of the question.

    In as few chunks as there can be where a plan has more sends than the parameters allow, and for a collective that is
    given chunk by chunk.
    """
    if isinstance(problem.collective, Collective) or problem.topology.device_count < 2:
        return Quick(problem.coarsest)
    chunking = parameters.chunking

    def attempt(cut: Chunked, stage: SolveOptions, best_s: float, is_brief: bool = False) -> Quick:
        cheap = replace(cut, method="greedy", path_slack=None)
        of_cut = bounds_of(cheap, parameters.bounds, stage, question=bounds)
        if cut.pair_count <= FEW_PAIRS and not math.isinf(best_s):
            least_s = of_cut.quick_greedy_s if is_brief else of_cut.greedy_s
            if least_s >= best_s:
                return Quick(cut, bounds=of_cut, least_s=least_s)
        greedy = replace(parameters.greedy, rows=chunking.brief_rows if is_brief else chunking.rows)
        plan = plan_greedy(cheap, stage, greedy, chunking.tries, of_cut, is_brief)
        return Quick(cut, None if plan is None else replace(plan, problem=cut), of_cut)

    is_brief = _is_slow(problem.coarsest)
    search = _Search(problem, bounds, Deadline(options), chunking, partial(attempt, is_brief=is_brief))
    if search.most < 2:
        return Quick(problem.coarsest if search.most < 1 else problem.in_chunks(1))
    search.run(_promising(problem, bounds, chunking, search.most))
    if not search.found:
        return Quick(problem.coarsest)
    if is_brief:
        search.repeat(attempt, options.gap)
    fastest = search.found[search.best]
    for_milp = _for_milp(search.found, problem.method == "milp" or options.solver is not None, parameters)
    return replace(fastest, for_milp=for_milp, ends_s=search.ends_s if is_brief else {})


def _is_slow(problem: Chunked) -> bool:
    """Whether an order has many sends: there are no rotations, and many chunks are wanted."""
    phases = [phase.problem for phase in problem.phases]
    return all(phase.wanted.sum() > _FEW_SENDS and len(rotations_of(phase)) == 1 for phase in phases)


def _for_milp(found: dict[int, Quick], is_alone: bool, parameters: Parameters) -> Chunked | None:
    """The problem in the largest number of chunks that the MILP can take, of those nearly as good as the best.

    Where the MILP is alone, it is the best of those that are small enough, or else the smallest number.
    """
    tried = [quick for _, quick in sorted(found.items())]
    easy = [quick for quick in tried if quick.problem.routing_binaries <= parameters.milp.most_binaries]
    if is_alone:
        easy = easy or tried[:1]
    best_s = min(quick.end_s for quick in (easy if is_alone else tried))
    near = [quick for quick in easy if quick.end_s <= (1 + parameters.chunking.near_for_milp) * best_s]
    return near[-1].problem if near else None


def best_matching(
    problem: Problem, quick: Quick, bounds: Bounds, options: SolveOptions, parameters: Parameters
) -> Quick | None:
    """The problem in the number of chunks with which matchings are fastest, and that plan, None where it isn't known.

    `quick`: where the greedy is fastest. Numbers around it are tried, but none with which the greedy is far behind;
    where these leave a single one, there is nothing to try.
    """
    around = quick.problem.chunks
    matching = replace(parameters.matching, sends=parameters.chunking.rows)

    def attempt(cut: Chunked, stage: SolveOptions, best_s: float) -> Quick:
        of_cut = bounds_of(cut, parameters.bounds, stage, question=bounds)
        least_s = of_cut.quick_any_grouping_s
        if least_s >= best_s:
            return Quick(cut, bounds=of_cut, least_s=least_s)
        return Quick(cut, matched_plan(cut, stage, matching, of_cut, is_quick=True), of_cut)

    hopeless = _hopeless(quick, parameters.chunking)
    search = _Search(problem, bounds, Deadline(options), parameters.chunking, attempt, hopeless)
    named = dict.fromkeys([around, around // 2, *_denominators(problem, bounds, parameters.chunking)])
    numbers = [number for number in named if 1 <= number <= max(search.most, around) and not hopeless(number)]
    if numbers == [around] and (around == 1 or hopeless(around - 1)) and hopeless(around + 1):
        return Quick(quick.problem, bounds=quick.bounds)
    search.run(numbers)
    if not search.found:
        return None
    best = search.found[search.best]
    assert best.plan is not None
    assert best.bounds is not None
    bounds_s = best.bounds.any_grouping
    return replace(best, plan=replace(best.plan, bound_s=max(bounds_s.values()), bounds_s=bounds_s))


def _hopeless(quick: Quick, chunking: Chunking) -> Callable[[int], bool]:
    """Whether the greedy is far behind its best in so many chunks, or is already in a number between that and these."""
    own, far_s = quick.problem.chunks, chunking.far_factor * quick.end_s
    far = [number for number, end_s in quick.ends_s.items() if end_s > far_s]
    least = max((number for number in far if number < own), default=0)
    most = min((number for number in far if number > own), default=math.inf)
    return lambda number: not least < number < most


def _none_is_hopeless(_: int) -> bool:
    return False


@dataclass
class _Search:
    """What is known so far: `found[n]` is the plan in n chunks of one method, `attempt`, which gets the time that it is
    to beat. `ends_s[n]`: when that plan is over, or a bound where it can't beat the best. `hopeless`: says which
    numbers aren't tried.
    """

    problem: Problem
    bounds: Bounds
    deadline: Deadline
    chunking: Chunking
    attempt: Callable[[Chunked, SolveOptions, float], Quick]
    hopeless: Callable[[int], bool] = _none_is_hopeless

    def __post_init__(self) -> None:
        self.found: dict[int, Quick] = {}
        self.ends_s: dict[int, float] = {}
        coarsest, collective = self.problem.coarsest.collective, self.problem.collective
        among = collective.most_ranks if isinstance(collective, Groups) else self.problem.topology.device_count
        sends = coarsest.chunk_count * among
        self.most = min(self.chunking.most_sends // sends, self.problem.size_bytes // max(map(len, coarsest.inputs)))

    @property
    def best(self) -> int:
        """The number whose plan is the fastest; of equals the smallest."""
        return min(self.found, key=lambda number: (self.found[number].end_s, number))

    @property
    def is_over(self) -> bool:
        """Whether the best plan needs no better number, or there is no time for one."""
        if self.deadline.over or len(self.ends_s) >= self.chunking.most_numbers:
            return True
        if not self.found:
            return False
        end_s = self.found[self.best].end_s
        return end_s - self.bounds.asked_s <= self.chunking.gap * end_s

    def run(self, numbers: Iterable[int]) -> None:
        """These numbers in turn, until they are clearly worse, or bounds rule out some; then those around the best."""
        without = 0
        for number in numbers:
            if self.is_over:
                return
            best_s = self.found[self.best].end_s if self.found else math.inf
            end_s = self._try(number)
            without = 0 if number in self.found else without + 1
            if end_s > self.chunking.give_up_factor * best_s or without >= self.chunking.patience:
                break
        without = 0
        while self.found and without < self.chunking.patience and not self.is_over:
            beside = self._beside_the_best()
            if beside is None:
                return
            best_s = self.found[self.best].end_s
            without = 0 if self._try(beside) < best_s * (1 - self.chunking.least_gain) else without + 1

    def _try(self, number: int) -> float:
        """When the plan in so many chunks is over, or at least is, inf without one."""
        best_s = self.found[self.best].end_s if self.found else math.inf
        made = self.attempt(self.problem.in_chunks(number), self._stage(), best_s * (1 - self.chunking.least_gain))
        end_s = min(made.end_s, made.least_s)
        if math.isfinite(made.end_s):
            self.found[number] = made
        if math.isfinite(end_s):
            self.ends_s[number] = end_s
        return end_s

    def repeat(self, attempt: Callable[[Chunked, SolveOptions, float], Quick], gap: float) -> None:
        """The best number once more by another attempt, where it is proven within the gap, which ends the search.

        The faster plan is kept.
        """
        known = self.found[self.best]
        if not self.is_over and known.end_s - self.bounds.asked_s <= gap * known.end_s:
            made = attempt(known.problem, self._stage(), math.inf)
            self.found[self.best] = min(made, known, key=lambda quick: quick.end_s)

    def _stage(self) -> SolveOptions:
        return replace(self.deadline.stage(), gap=self.chunking.gap, on_progress=None, on_plan=None)

    def _beside_the_best(self) -> int | None:
        """A number between the best and the next that was tried, on the side of the better; None if none is left."""
        ends_s, best = self.ends_s, self.best
        below = [number for number in ends_s if number < best]
        above = [number for number in ends_s if number > best]
        sides = [(ends_s[min(above)], _between(best, min(above)))] if above else [(0.0, 2 * best)]
        if below:
            sides.append((ends_s[max(below)], _between(max(below), best)))
        numbers = [number for _, number in sorted(sides) if 1 <= number <= self.most and not self.hopeless(number)]
        fresh = [number for number in numbers if number not in ends_s]
        return fresh[0] if fresh else None


def _between(low: int, high: int) -> int:
    """The number in the middle, by ratio."""
    return max(low + 1, min(round(math.sqrt(low * high)), high - 1))


def _promising(problem: Problem, bounds: Bounds, chunking: Chunking, most: int) -> list[int]:
    """A few small numbers, and what bandwidth and latency name, ascending.

    Bandwidth: the denominator on the fastest of the links that have one. Latency: of n pieces that are handed on over h
    links the last one is there after about n messages on the busiest link and h - 1 more, which is least for sqrt((h -
    1) T / (alpha m)), T being the time of all data on the fastest link, and m how many times that the busiest link
    needs.
    """
    topology, sources_s = problem.topology, bounds.any_chunking
    data_s = float(topology.beta_s_per_byte.min()) * problem.size_bytes
    least_s = max(sources_s["bandwidth"], sources_s["cuts"] - sources_s["latency"])
    named = {*chunking.numbers, *_denominators(problem, bounds, chunking)[:1]}
    if data_s > 0 and least_s > 0:
        alpha_s = float(topology.alpha_s.min())
        if alpha_s > 0:
            further = max(sources_s["latency"] / alpha_s - 1, 0.0)
            named.add(round(math.sqrt(further * data_s / (alpha_s * least_s / data_s))))
    return sorted(number for number in named if 1 <= number <= min(most, chunking.most_pieces))


def _denominators(problem: Problem, bounds: Bounds, chunking: Chunking) -> list[int]:
    """Where the bandwidth bound is p/q times what all data of a rank take on a kind of links, they must be cut in q
    pieces for these to be busy without a break: such q, of the fastest links first.
    """
    bandwidth_s, found = bounds.any_chunking["bandwidth"], list[int]()
    for beta_s_per_byte in np.unique(problem.topology.beta_s_per_byte).tolist():
        data_s = beta_s_per_byte * problem.size_bytes
        share = Fraction(bandwidth_s / data_s if data_s > 0 else 0.0).limit_denominator(chunking.most_pieces)
        if share and abs(float(share) * data_s - bandwidth_s) <= 1e-9 * bandwidth_s:
            found.append(share.denominator)
    return found
