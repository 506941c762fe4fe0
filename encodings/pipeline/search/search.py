"""The search over cuts, recomputation and orders, with one bound on all of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.policies import any_policy_s
from gapless.encodings.pipeline.compression.joint import compressed, mean_stages, relaxed_bound_s
from gapless.encodings.pipeline.compression.modes import Spoiling, spoiling_of
from gapless.encodings.pipeline.compression.recipes import followed
from gapless.encodings.pipeline.compression.rules import RECIPES, Recipe
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.policies import Choice, are_all_choices, choices_of, next_to
from gapless.encodings.pipeline.cut.search import CutSearch, bottleneck_of, cheap_cuts, fixed_cut, mean_load_s
from gapless.encodings.pipeline.cut.two_stages import LeastCut, least_cut
from gapless.encodings.pipeline.methods import best_orders, first_orders, improved_orders, quick_orders
from gapless.encodings.pipeline.order.cells import with_cells
from gapless.encodings.pipeline.order.orders import Candidate, Order
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Cut, Kind, Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.work import with_work, work_bound_s
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.programs.memory import held_bytes
from gapless.encodings.pipeline.programs.start import Start
from gapless.encodings.pipeline.schedules.baselines import apart, whole
from gapless.encodings.pipeline.search.boundaries import move_boundaries
from gapless.encodings.pipeline.search.case import Case
from gapless.encodings.pipeline.search.starts import started
from gapless.options import Deadline, SolveOptions
from gapless.solution import PROVEN_GAP

__all__ = ["ROUNDING", "Search"]


ROUNDING = PROVEN_GAP
"""What differs by less than this share is equal: sums in another order, and costs in ticks that are rounded down."""


class Search:
    """Cuts in the order of their bound, each ordered quickly; then the best of them with all methods.

    `cases`: those that were ordered. `open_s`: a bound on the cuts that are still to be tried; `rest_s`: on all that
    were left out; inf where there are none. `offer` is called with each order that is faster than all before it.
    """

    def __init__(
        self, problem: Problem, options: SolveOptions, deadline: Deadline, parameters: Parameters,
        offer: Callable[[Candidate], None],
    ) -> None:  # fmt: skip
        self.asked, self.problem = problem, problem.relaxed
        self.options, self.deadline, self.parameters = options, deadline, parameters
        self.effort = options, deadline, parameters
        self.offer = offer
        self.cases: list[Case] = []
        self.best: Candidate | None = None
        self.cut_count = self.ordered_count = 0
        self.rest_s, self.open_s = math.inf, self.load_s

    def run(self, is_quick: bool = False) -> None:
        """All of it; or quickly, by the schedules of the field and a short run of the heuristic.

        The first order is found in linear time, and counts where there is no other.
        """
        first = self._first()
        for start in self.asked.starts:
            self._begin_with(start)
        if self.problem.link is not None:
            self._without_copies(is_quick)
        for cut, bound_s in self._cuts():
            self.cut_count += 1
            self.open_s = max(self.open_s, bound_s)
            self._try(cut, bound_s)
        self.open_s = math.inf
        if not is_quick and self.problem.cut == "auto" and self.problem.chunks > 1:
            move_boundaries(self)
        if self.problem.recomputation in ("auto", "curve"):
            self._change_policies()
        if self.best is None and first is not None:
            self.cases.append(replace(first, bounds_s=bounds_of(first.stages)))
            self.best = first.best
        if is_quick:
            return
        for case in self._fastest(Case.rank):
            if not self.deadline.over and not self.is_beaten(case.bound_s):
                self._refine(case)
        if self.problem.compression is not None and self.problem.method not in RECIPES:  # which say what is compressed
            self._compress(self._fastest(Case.moded_rank))

    def _begin_with(self, start: Start) -> None:
        """A plan that is there already, as an order of its cut and choice, which are searched on like the others."""
        made = started(self.asked, start)
        if made is None:
            return
        choice, found = made
        splits = found.stages.splits or False not in self.problem.shapes(_recomputes(choice))
        case = self._case(found.cut, choice, splits)
        self.add(case, [found] if (self._held(found) <= found.stages.room_bytes).all() else [])

    def _case(self, cut: Cut, choice: Choice, splits: bool) -> Case:
        """The one of this cut and choice, which is made where there is none yet."""
        for case in self.cases:
            if (case.cut, case.choice, case.stages.splits) == (cut, choice, splits):
                return case
        stages = stages_of(self.problem, cut, choice, splits)
        case = Case(cut, stages, bounds_of(stages), choice=choice)
        if self.has_cells:
            _raise(case.bounds_s, bounds_of(stages_of(self.asked, cut, choice, splits)))
        if self.asked.work:
            case.bounds_s["work"] = work_bound_s(stages, self.asked.total_work)
        spoiling = spoiling_of(self.problem, cut, stages.crosses)
        if spoiling is not None:
            case.bounds_s["modes"] = relaxed_bound_s(stages, spoiling, self.deadline.stage())
        self.cases.append(case)
        return case

    def _without_copies(self, is_quick: bool) -> None:
        """What is found without a link is a plan with one: no link makes it slower."""
        search = Search(replace(self.asked, link=None, starts=()), *self.effort, lambda found: None)
        search.run(is_quick)
        case, best = search.case_of_best, search.best
        if case is None or best is None:
            return
        stages = stages_of(self.problem, case.cut, case.choice, best.stages.splits)
        timeline = timed(stages, best.order)
        if timeline is not None:
            self.cases.append(Case(case.cut, stages, bounds_of(stages), choice=case.choice))
            self.add(self.cases[-1], self._fitting([replace(best, stages=stages, timeline=timeline)]))

    def _fastest(self, rank: Callable[[Case], tuple[float, float]]) -> list[Case]:
        """The cases that are worth more work."""
        ranked = sorted((case for case in self.cases if case.best is not None), key=rank)
        return ranked[: self.parameters.refined_cuts]

    @property
    def bound_s(self) -> float:
        """No answer to the question takes less."""
        return max(self.load_s, min([self.rest_s, self.open_s, *(case.bound_s for case in self.cases)]))

    @property
    def has_cells(self) -> bool:
        """Whether forwards and backwards may run in cells: then orders are made without, and improved with them."""
        return self.asked.overlap_cost != 1

    @property
    def load_s(self) -> float:
        """What all ranks have to compute, in the mean."""
        share = self.asked.total_work / self.problem.micro_batches
        return self.problem.steps * share * mean_load_s(self.problem)

    @property
    def is_over(self) -> bool:
        """Whether there is a plan, and no more cuts may be tried or time is up."""
        is_enough = self.ordered_count >= self.parameters.ordered_cuts
        return self.best is not None and (is_enough or self.deadline.over)

    def is_beaten(self, bound_s: float) -> bool:
        """Whether what is bounded so can't be better than the best by more than the gap that was asked for."""
        best_s = math.inf if self.best is None else self.best.timeline.cost_s
        return bound_s >= best_s * (1 - max(ROUNDING, self.options.gap))

    def add(self, case: Case, found: list[Candidate]) -> None:
        """Orders of a case that stay within memory."""
        there = {(known.method, known.rank) for known in case.known}
        found = [candidate for candidate in found if (candidate.method, candidate.rank) not in there]
        case.known += found
        best = min(found, key=lambda candidate: candidate.rank, default=None)
        if best is not None and (self.best is None or best.rank < self.best.rank):
            self.best = best
            self.offer(best)

    def _cuts(self) -> Iterator[tuple[Cut, float]]:
        """Cuts and what bounds them, until no other can be better, or enough were tried."""
        fixed, most = fixed_cut(self.problem), self.parameters.partial_cuts
        if fixed is not None:
            yield fixed, 0.0
            return
        search = CutSearch(self.problem, most, deadline=self.deadline)
        self.open_s, is_least = max(self.open_s, search.least), self.problem.cut == "bottleneck"
        if self.problem.copies > 1 and not is_least:  # a rank's load says little of cuts that load both its ends alike
            yield from ((cut, search.least) for cut in cheap_cuts(self.problem))
        cuts = bottleneck_of(self.problem, most, self.deadline) if is_least else search
        for cut in cuts:
            bound_s = 0.0 if is_least else search.bound
            if self.is_beaten(bound_s) or self.is_over:
                self.rest_s = self.least_s() if is_least else bound_s
                return
            yield cut, bound_s
        self.rest_s = search.bound if search.is_cut_short else math.inf
        if not self.cut_count:  # as with several stages a rank, whose loads are known late
            self.rest_s = self.open_s = self.least_s() if is_least else max(search.bound, self._of_two.bound_s)
            cheap = cheap_cuts(self.problem)[: 1 if is_least else None]
            own = [] if is_least or not self._of_two.cut else [self._of_two.cut]
            for cut in dict.fromkeys([*cheap, *own]):
                yield cut, self.rest_s

    @cached_property
    def _of_two(self) -> LeastCut:
        return least_cut(self.problem) or LeastCut(0.0, ())

    def least_s(self, share: float = 1.0) -> float:
        """A bound on every cut of this placement, in a share of the work on cuts."""
        search = CutSearch(self.problem, max(1, int(share * self.parameters.partial_cuts)), deadline=self.deadline)
        next(iter(search), None)
        return max(search.bound, self._of_two.bound_s)

    def _first(self) -> Case | None:
        """A cut that is cheap to find, in the first order that stays within memory; None where none does."""
        fixed = fixed_cut(self.problem)
        for cut in cheap_cuts(self.problem) if fixed is None else [fixed]:
            choices = choices_of(self.problem, stages_of(self.problem, cut), cut, 1)
            for choice in (choices[0], choices[-1]):  # what recomputes least, and most
                stages = stages_of(self.problem, cut, choice)
                case = Case(cut, stages, {})
                case.known.extend(self._fitting(first_orders(self.problem, cut, stages)))
                if case.best is not None:
                    self.offer(case.best)
                    return case
        return None

    def _try(self, cut: Cut, bound_s: float) -> None:
        """Every choice of what recomputes and of splitting backwards, unless its bound says that it is no better."""
        plain = stages_of(self.problem, cut)
        choices = choices_of(self.problem, plain, cut, self._most_choices)
        if self.problem.recomputation == "curve" or not are_all_choices(self.problem, plain, cut, self._most_choices):
            best_s = math.inf if self.best is None else self.best.timeline.cost_s
            every_s = min(any_policy_s(self.problem, cut, splits, best_s) for splits in self.problem.shapes())
            self.rest_s = min(self.rest_s, max(bound_s, every_s))
        shaped = [(choice, splits) for choice in choices for splits in self.problem.shapes(_recomputes(choice))]
        for choice, splits in shaped:
            if self.is_over:
                self.rest_s = min(self.rest_s, bound_s)
                return
            self.order(cut, choice, splits, bound_s)

    @property
    def _most_choices(self) -> int:
        """Up to which all choices of what stages recompute are tried."""
        return int(2**self.parameters.recomputed_stages)

    def order(self, cut: Cut, choice: Choice, splits: bool, bound_s: float = 0.0) -> None:
        """Quick orders of a case, unless its bound says that it is no better."""
        case = self._case(cut, choice, splits)
        _raise(case.bounds_s, {"cut": bound_s} if bound_s else {})
        if not self.is_beaten(case.bound_s):
            self.ordered_count += 1
            self.add(case, self._fitting(self._quickly(cut, case.stages)))

    def _change_policies(self) -> None:
        """From the best case on, a step of one stage along its curve at a time, as long as that gains."""
        left, tried = self.parameters.policy_steps, {(case.cut, case.choice) for case in self.cases}
        while (best := self.case_of_best) is not None:
            steps = next_to(self.problem, best.cut, best.stages.splits, best.choice)
            for choice in steps:
                if not left or self.deadline.over:
                    return
                if (best.cut, choice) in tried:
                    continue
                tried.add((best.cut, choice))
                for splits in self.problem.shapes(_recomputes(choice)):
                    self.order(best.cut, choice, splits, best.bounds_s.get("cut", 0.0))
                left -= 1
                if self.case_of_best is not best:
                    break
            else:
                return

    @property
    def case_of_best(self) -> Case | None:
        """The case of the best order so far."""
        return next((case for case in self.cases if any(found is self.best for found in case.known)), None)

    def _quickly(self, cut: Cut, stages: Stages) -> list[Candidate]:
        """By the schedules of the field and a short run of the heuristic; the first order alone, or the heuristic's,
        where each of them takes as long as such a run should."""
        if len(Kind) * stages.count * stages.micro_batches <= self.parameters.quick_ops:
            return quick_orders(self.problem, cut, stages, *self.effort)
        found = first_orders(self.problem, cut, stages)
        return found or quick_orders(self.problem, cut, stages, *self.effort)

    def _refine(self, case: Case) -> None:
        """Orders by all methods, and what they prove of plain messages."""
        orders = best_orders(
            self.problem, case.cut, case.stages, *self.effort, case.known if self.asked is self.problem else (),
            lambda found: self.add(case, self._fitting([found])), improves=not self.has_cells,
            ends=self._is_plain(case.stages),
        )  # fmt: skip
        plain_only = () if self.problem.compression is None else ("exact",)
        _raise(case.bounds_s, {name: s for name, s in orders.bounds_s.items() if name not in plain_only})
        self.add(case, self._fitting(orders.known if orders.best is None else [*orders.known, orders.best]))
        if self.has_cells and case.best is not None and not self.is_beaten(case.bound_s):
            celled = improved_orders(self.asked, case.best, *self.effort, lambda found: self.add(case, [found]))
            _raise(case.bounds_s, celled.bounds_s)

    def _is_plain(self, stages: Stages) -> bool:
        """Whether plain orders of these stages are plans as they are: no modes or cells follow, and what they hold is
        what was looked at when they were made."""
        is_free = not self.problem.counts_messages or bool(np.isinf(stages.memory_bytes).all())
        return self.asked is self.problem and self.problem.compression is None and is_free

    def _compress(self, cases: list[Case]) -> None:
        """The best modes for the orders of some cases; then orders for the best modes by all methods, and so on."""
        for case in cases:
            fuses = self.problem.replicas.fuses_embedding
            made = followed(self.problem, case.cut).items() if not case.stages.recomputes.any() else ()
            own = [found for name, (found, _) in made if RECIPES.get(name, Recipe()).fuses_embedding == fuses]
            self.add(case, self._fitting(own))
        of_case = [(case, found) for case in cases for found in case.known]
        for turn in range(self.parameters.mode_rounds):
            cases_of = {id(found.order): case for case, found in of_case}
            before = self.best
            moded = compressed(
                [found for _, found in of_case], self._spoiling, before.timeline.cost_s if before else math.inf,
                self.parameters.moded_orders, self.parameters.mode_steps, self.deadline,
            )  # fmt: skip
            for origin, found in moded:
                case = cases_of[id(origin.order)]
                self.add(case, self._fitting([found]))
            best, is_last = self.best, turn == self.parameters.mode_rounds - 1
            if best is None or is_last or (turn and best is before) or self.deadline.over:
                return
            case = next(case for case in cases if any(found is best for found in case.known))
            of_case = [(case, found) for found in self._for_modes(case, best.order)]

    def _spoiling(self, candidate: Candidate) -> Spoiling:
        spoiling = spoiling_of(self.problem, candidate.cut, candidate.stages.crosses)
        assert spoiling is not None, "compression is offered"
        return spoiling

    def _for_modes(self, case: Case, modes: Order) -> list[Candidate]:
        """Orders made for hops that cost what they do in these modes, by all methods but the exact one: it would take
        long to prove what holds for these modes alone.
        """
        problem = replace(self.problem, method="search") if self.problem.method == "auto" else self.problem
        fewer = replace(self.parameters, rounds=self.parameters.moded_rounds)
        mean = mean_stages(case.stages, modes)
        orders = best_orders(problem, case.cut, mean, self.options, self.deadline, fewer)
        found = []
        for made in orders.known if orders.best is None else [orders.best, *orders.known]:
            own = case.stages if made.stages.splits else whole(case.stages)
            order = replace(made.order, hop_modes=modes.hop_modes, reduce_modes=modes.reduce_modes)
            timeline = timed(own, order)
            if timeline is not None:
                found.append(replace(made, stages=own, order=order, timeline=timeline))
        return found

    def _fitting(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those that fit into memory with what compressors keep, and where instants don't say what comes first; with
        cells, where a forward and a backward can be overlapped, and the micro-batches' own work."""
        if self.asked is not self.problem:
            candidates = [made for each in candidates if (made := self._as_asked(each)) is not None]
        return [each for each in candidates if (self._held(each) <= each.stages.room_bytes).all()]

    def _as_asked(self, candidate: Candidate) -> Candidate | None:
        """On the stages of the question, with its own backwards: one that isn't asked for has a bound of its own."""
        if self.asked.work:
            work = np.array(self.asked.work) / min(self.asked.work)
            own = replace(candidate.stages, work=work, feed=tuple(range(len(work))))
            return with_work(candidate, own, self.parameters.work_ops)
        stages = stages_of(self.asked, candidate.cut)
        if stages.splits and not candidate.stages.splits:
            candidate = replace(candidate, order=apart(stages, candidate.order))
        return with_cells(candidate, stages, self.parameters.cell_ops)

    def _held(self, candidate: Candidate) -> Floats:
        """What ranks hold besides their states; without messages where they don't count."""
        if np.isinf(candidate.stages.memory_bytes).all():
            return np.zeros(self.problem.ranks)
        if not self.problem.counts_messages and candidate.timeline.offloaded_s is not None:
            return np.zeros(self.problem.ranks)  # it was looked at when it was timed
        if not self.problem.counts_messages:
            return peak_bytes(candidate.stages, candidate.timeline.program)
        spoiling = spoiling_of(self.problem, candidate.cut, candidate.stages.crosses)
        return held_bytes(self.problem, candidate.stages, candidate.order, candidate.timeline, spoiling)


def _raise(bounds_s: dict[str, float], others_s: Mapping[str, float]) -> None:
    """Each bound to that of the same name, where that is higher."""
    for name, bound_s in others_s.items():
        bounds_s[name] = max(bound_s, bounds_s.get(name, 0.0))


def _recomputes(choice: Choice) -> bool:
    return any(policy.recomputes for policy in choice)
