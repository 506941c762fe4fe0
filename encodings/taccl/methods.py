"""The methods of TACCL in the order in which they are tried: when each is of use, what it costs, what it makes.

0. *First plan* (`first`, `flow/first.py`): the libraries' algorithms, and shortest paths or on many ranks one matching:
   at once, by counted work, so that whenever the time is up there is an answer that no library beats.
1. *Chunks*, where nobody says how many: the greedy for some numbers of them, 150 orders each (`flow/chunking.py`), some
   tenths of a second each; few first, then finer ones as long as the bound says that something is left to gain, but
   none that its own bound rules out. The best of these plans is the greedy's quick one. Left out for a collective of
   one's own, and where there are many sends.
2. *Aggregated sends* and *baselines* (`aggregate/stage.py`): whole buffers in one send, by randomised construction,
   2 s, and what libraries do, 4 s at most, first. Left out above 128 ranks, and where a sketch orders single chunks.
3. *Packed trees* (`trees`, `flow/trees`): an ALLREDUCE up and down trees that load links alike, some 2 s;
   where links aren't alike in both directions, up some trees and down others (`directed_trees.py`). Left out under
   a sketch, and where loads and the longest tree promise nothing better than the best. Then matchings that add chunks
   up where bandwidth would have them (`sum_roots.py`), where that isn't on all ranks alike. Where roots on all
   ranks alike are far behind what trees may take (`needs_other_roots`), these come first, no number of chunks is
   searched for the greedy; and no matching or greedy follows, where such roots take longer than the best plan by far.
4. *Matching with restarts* (`matching`, `flow/restarts.py`): in the numbers of chunks around the one found, tenths of a
   second each, then more work in the best of them. Left out where each chunk is for one rank, whose flow the greedy
   rounds.
5. *Greedy* (`greedy`, `flow/greedy.py`): matching or rounded flow, then list scheduling; 1 s on small problems, else
   5 s. Left out where its quick plan is far behind the best. Where no gap is allowed, on few ranks, all methods
   are tried in each small number of chunks at last.
6. *MILP* (`milp`, `milp/synthesis.py`): the thesis's three stages, some 15 s at most, in the largest number of chunks
   that is small enough for it. Without a sketch it runs only where it is asked for by name, with a path slack where it
   is small, or where the greedy can't plan the collective: otherwise it was the only best method of no question.

A sketch is written for the MILP. So under one it is first, unless bounds say that no plan chunk by chunk can be proven
within the gap; then aggregated sends are. Matching and greedy follow. Everything keeps to what the sketch allows.

What they share is a `Search` (`search.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gapless.encodings.taccl.aggregate.stage import VARIANTS, Known, may_aggregate, plan_aggregated
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.chunking import Quick, best_matching
from gapless.encodings.taccl.flow.greedy import may_be_greedy, plan_greedy
from gapless.encodings.taccl.flow.restarts import matched_plan, may_be_matched
from gapless.encodings.taccl.flow.trees.directed_trees import plan_on_directed_trees
from gapless.encodings.taccl.flow.trees.loaded_trees import may_load_trees, plan_on_loaded_trees
from gapless.encodings.taccl.flow.trees.spanning_trees import doubled_chunks, plan_on_trees
from gapless.encodings.taccl.flow.trees.sum_roots import plan_from_roots, roots_at_once
from gapless.encodings.taccl.milp.synthesis import synthesise
from gapless.encodings.taccl.parameters import Parameters, Trees
from gapless.encodings.taccl.search import Search
from gapless.errors import InputError
from gapless.methods import run_methods

__all__ = ["NAMES", "may_pack_trees", "methods_for", "needs_other_roots"]

_FEW_RANKS = 5
"""Up to here a gap of 0 means that each small number of chunks is tried."""


@dataclass(frozen=True)
class _Method:
    """One of the methods; `attempts`: what it tries in turn, None where nothing comes of it. `parts`: its variants, by
    which a parameter file may name it instead.
    """

    name: str
    supports: Callable[[Chunked], bool]
    attempts: Callable[[Search], Iterator[Candidate | None]]
    parts: tuple[str, ...] = ()

    def run(self, search: Search) -> Iterator[Candidate]:
        """What comes of its attempts."""
        return (found for found in self.attempts(search) if found is not None)


def methods_for(search: Search) -> list[_Method]:
    """The methods for a question in their order, as far as the parameters allow them.

    Raises `InputError` where they allow none of the methods that the question asks for.
    """
    problem, choice = search.problem, search.parameters.methods
    if problem.method == "greedy":
        methods = [_QUICK, _GREEDY]
    elif search.is_alone:
        methods = [_MILP]
    elif problem.sketch is not None or problem.path_slack is not None or not may_be_greedy(problem):
        # Whether a plan chunk by chunk may be proven within the gap of what was asked:
        milp_may_do = search.question.quick_asked_s >= (1 - search.options.gap) * search.bounds.chunk_by_chunk_s
        methods = [_MILP, _AGGREGATED] if milp_may_do else [_AGGREGATED, _MILP]
        methods += [_MATCHING, _GREEDY]
    else:
        trees_first = needs_other_roots(search.question, search.parameters)
        methods = [_TREES, _AGGREGATED] if trees_first else [_AGGREGATED, _QUICK, _TREES]
        methods += [_LOADED, _MATCHING, _GREEDY, _EVERY_NUMBER]
        methods += [_MILP] if "milp" in choice.only else []
    allowed = [method for method in methods if any(map(choice.allows, method.parts or (method.name,)))]
    if not allowed and search.is_alone:
        raise InputError(f"methods: must leave {methods[0].name}, which the question asks for, got none")
    return allowed


def needs_other_roots(question: Bounds, parameters: Parameters) -> bool:
    """Whether it is an ALLREDUCE for which plans with as many roots on each rank are far behind packed trees.

    Of W seconds on the busiest link in n pieces, each with an alpha, d of them one after the other, trees take W + n a
    + d W / n: W + 2 sqrt(W a d) for the best n.
    """
    trees = parameters.trees
    if not parameters.methods.allows("trees") or not (even_s := _even_roots_s(question, trees)):
        return False
    busiest_s, up_and_down_s = question.quick_asked_s, 2 * question.any_chunking["latency"]
    return even_s > trees.hopeless_roots_factor * (busiest_s + 2 * math.sqrt(busiest_s * up_and_down_s))


def _even_roots_s(question: Bounds, parameters: Trees) -> float:
    """See `Bounds.even_roots_s`; 0 for other collectives, and where the network is large or all ranks are alike."""
    problem = question.problem
    ranks, links = problem.collective.rank_count, problem.link_count
    is_small = ranks * links <= parameters.most_root_looks
    if not is_small or not may_pack_trees(problem) or len(np.unique(problem.rotations.rank_orbit)) == 1:
        return 0.0
    return question.even_roots_s


def _are_even_roots_hopeless(search: Search) -> bool:
    """Whether no plan with as many roots on each rank comes near the best one."""
    parameters = search.parameters.trees
    far_s = parameters.hopeless_roots_factor * search.end_s
    return not search.is_alone and _even_roots_s(search.question, parameters) > far_s


def _aggregated(search: Search) -> Iterator[Candidate | None]:
    """Aggregated sends and baselines."""
    aggregation, choice = search.parameters.aggregation, search.parameters.methods
    if may_aggregate(search.problem, aggregation):
        first = search.first if choice.allows("first") else None
        library_s = 0.0 if first is None or search.problem.groups is not None else first.end_s
        known = Known(search.known_s, library_s)
        yield plan_aggregated(search.problem, search.stage(), aggregation, search.bounds, choice, known)


def _quick(search: Search) -> Iterator[Candidate | None]:
    """The greedy's quick plan from the search for the number of chunks."""
    yield search.quick.plan


def _trees(search: Search) -> Iterator[Candidate | None]:
    """Packed trees, then matchings with roots by bandwidth, where they may be faster than the best."""
    question, parameters = search.question, search.parameters.trees
    problems = list(_doubled(search))
    yield plan_on_trees(problems, search.stage(), question, search.known_s, parameters)
    if not search.is_over:
        roots = roots_at_once(question, search.stage(), search.known_s, parameters)
        finer = list(_doubled(search, with_middles=True)) if roots else []
        yield plan_on_directed_trees(finer, roots, search.stage(), question, search.known_s, parameters)
    if not search.is_over:
        matching = search.parameters.matching
        yield plan_from_roots(problems, search.stage(), question, search.known_s, parameters, matching)


def _loaded_trees(search: Search) -> Iterator[Candidate | None]:
    """Trees that load links and ports alike, where they may be faster than the best."""
    parameters = search.parameters.trees
    yield plan_on_loaded_trees(_doubled(search), search.stage(), search.question, search.end_s, parameters)


def _doubled(search: Search, with_middles: bool = False) -> Iterator[Chunked]:
    """The problem in more and more chunks, where it doesn't say how many."""
    if search.asked is None:
        yield search.problem
        return
    for number in doubled_chunks(search.problem, search.parameters.trees, with_middles):
        yield search.asked.in_chunks(number)


def may_pack_trees(problem: Chunked) -> bool:
    """Whether it is an ALLREDUCE of all ranks, more than two, in which every chunk may take every link."""
    return problem.collective.rank_count > 2 and problem.sketch is None and problem.is_free and problem.sums_for_all


def _matching(search: Search) -> Iterator[Candidate | None]:
    """Matching with restarts: briefly for some numbers of chunks, then for long in the best of them."""
    problem, parameters = search.problem, search.parameters
    if _are_even_roots_hopeless(search):
        return
    bounds = search.bounds
    if search.asked is not None:
        quick = best_matching(search.asked, search.quick, search.question, search.stage(), parameters)
        if quick is None:
            return
        problem, bounds = quick.problem, quick.bounds or bounds
        if quick.plan is not None:
            yield quick.plan
            if search.is_over or quick.end_s > parameters.matching.hopeless_factor * search.end_s:
                return
    yield matched_plan(problem, search.stage(), parameters.matching, bounds)


def _is_for_many(problem: Chunked) -> bool:
    """Whether matchings are of use: some chunk is for more than one rank, or is a sum."""
    is_for_one = not problem.collective.reduces and max(map(len, problem.collective.destinations)) <= 1
    return problem.path_slack is None and not is_for_one and may_be_matched(problem)


def _greedy(search: Search) -> Iterator[Candidate | None]:
    """The greedy, unless the best plan chunk by chunk is good enough, or hopeless."""
    problem, known, greedy = search.problem, search.by_chunks, search.parameters.greedy
    if _are_even_roots_hopeless(search):
        return
    if not search.is_alone:
        if known is not None and known.gap is not None and known.gap <= search.options.gap:
            return
        if known is not None and known.end_s > greedy.hopeless_factor * search.end_s:
            return
        is_first = known is None or known is search.quick.plan
        if is_first and problem.routing_binaries <= search.parameters.milp.most_binaries:
            greedy = replace(greedy, rows=greedy.rows_of_small)
    yield plan_greedy(problem, search.stage(1.0), greedy, bounds=search.bounds)


def _every_number(search: Search) -> Iterator[Candidate | None]:
    """All methods in each small number of chunks: what is best in little work may not be the number whose optimum is
    least.
    """
    asked, parameters = search.asked, search.parameters
    if asked is None or search.is_alone or search.options.gap > 0:
        return
    for number in range(1, parameters.chunking.every_number_to + 1):
        problem = asked.in_chunks(number)
        bounds = bounds_of(problem, parameters.bounds, search.stage(), question=search.question)
        if search.is_over:
            return
        if problem.chunks != search.problem.chunks:
            part = replace(search, problem=problem, options=replace(search.options, on_plan=None), first=None,
                           quick=Quick(problem, bounds=bounds), asked=None, best=None, by_chunks=None,
                           class_bounds_s={})  # fmt: skip
            run_methods(methods_for(part), problem, part)
            yield part.best


def _is_tiny(problem: Chunked) -> bool:
    """Whether it is for so few ranks that each number of chunks takes tenths of a second."""
    return problem.collective.rank_count <= _FEW_RANKS and may_be_greedy(problem)


def _milp(search: Search) -> Iterator[Candidate | None]:
    """The MILP: alone, under a sketch, or where nothing else can plan it; with a path slack, where it is small."""
    problem = search.quick.for_milp or search.problem
    is_asked = search.is_alone or "milp" in search.parameters.methods.only
    is_needed = is_asked or problem.sketch is not None or not may_be_greedy(problem)
    if is_needed or problem.routing_binaries <= search.parameters.milp.most_binaries:
        bounds = search.bounds if problem is search.problem else None
        stage = search.stage(1.0) if search.is_alone else search.stage()
        plan = synthesise(problem, stage, search.parameters.milp, bounds)
        yield None if plan is None else replace(plan, problem=problem)


def _any(problem: Chunked) -> bool:
    return True


_AGGREGATED = _Method("aggregated", _any, _aggregated, VARIANTS)
_QUICK = _Method("greedy", _any, _quick)
_TREES = _Method("trees", may_pack_trees, _trees)
_LOADED = _Method("trees", may_load_trees, _loaded_trees)
_MATCHING = _Method("matching", _is_for_many, _matching)
_GREEDY = _Method("greedy", lambda problem: problem.method == "greedy" or may_be_greedy(problem), _greedy)
_EVERY_NUMBER = _Method("every-number", _is_tiny, _every_number, (*VARIANTS, "trees", "matching", "greedy"))
_MILP = _Method("milp", _any, _milp)
NAMES = ("first", *VARIANTS, "trees", "matching", "greedy", "milp", "switched")
"""What parameter files call them."""
