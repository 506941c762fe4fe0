"""The methods of TACCL in the order in which they are tried: when each is of use, what it costs, what it makes.

0. *First plan* (`first`, `flow/first.py`): the libraries' algorithms, and shortest paths or on many ranks one matching:
   at once, by counted work, so that whenever the time is up there is an answer that no library beats.
1. *Chunks*, where nobody says how many: the greedy for some numbers of them, 150 orders each (`flow/chunking.py`), some
   tenths of a second each; few first, then finer ones as long as the bound says that something is left to gain, but
   none that its own bound rules out. The best of these plans is the greedy's quick one. Left out for a collective of
   one's own, and where there are many sends.
2. *Aggregated sends* and *baselines* (`aggregate/stage.py`): whole buffers in one send, by randomised construction,
   2 s, and what libraries do, 4 s at most, first. Left out above 128 ranks, and where a sketch orders single chunks.
3. *Packed trees* (`trees`, `flow/spanning_trees.py`): an ALLREDUCE up and down trees that load links alike, some 2 s.
   Left out under a sketch, and where loads and the longest tree promise nothing better than the best.
4. *Matching with restarts* (`matching`, `flow/restarts.py`): in the numbers of chunks around the one found, tenths of a
   second each, then more work in the best of them. Left out where each chunk is for one rank, whose flow the greedy
   rounds.
5. *Greedy* (`greedy`, `flow/greedy.py`): matching or rounded flow, then list scheduling; 1 s on small problems, else
   5 s. Left out where its quick plan is far behind the best.
6. *MILP* (`milp`, `milp/synthesis.py`): the thesis's three stages, some 15 s at most, in the largest number of chunks
   that is small enough for it. Without a sketch it runs only where it is asked for by name, with a path slack where it
   is small, or where the greedy can't plan the collective: otherwise it was the only best method of no question.

A sketch is written for the MILP. So under one it is first, unless bounds say that no plan chunk by chunk can be proven
within the gap; then aggregated sends are. Matching and greedy follow. Everything keeps to what the sketch allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gapless.encodings.taccl.aggregate.stage import VARIANTS, may_aggregate, plan_aggregated
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.chunking import best_matching
from gapless.encodings.taccl.flow.greedy import may_be_greedy, plan_greedy
from gapless.encodings.taccl.flow.restarts import matched_plan, may_be_matched
from gapless.encodings.taccl.flow.spanning_trees import doubled_chunks, may_pack_trees, plan_on_trees
from gapless.encodings.taccl.milp.synthesis import synthesise
from gapless.encodings.taccl.search import Search
from gapless.errors import InputError

__all__ = ["NAMES", "methods_for"]


@dataclass(frozen=True)
class _Method:
    """One of the methods; `parts`: its variants, by which a parameter file may name it instead."""

    name: str
    supports: Callable[[Chunked], bool]
    run: Callable[[Search], Iterator[Candidate]]
    parts: tuple[str, ...] = ()


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
        methods = [_AGGREGATED, _QUICK, _TREES, _MATCHING, _GREEDY]
        methods += [_MILP] if "milp" in choice.only else []
    allowed = [method for method in methods if any(map(choice.allows, method.parts or (method.name,)))]
    if not allowed and search.is_alone:
        raise InputError(f"methods: must leave {methods[0].name}, which the question asks for, got none")
    return allowed


def _aggregated(search: Search) -> Iterator[Candidate]:
    """Aggregated sends and baselines."""
    aggregation, choice = search.parameters.aggregation, search.parameters.methods
    if may_aggregate(search.problem, aggregation):
        plan = plan_aggregated(search.problem, search.stage(), aggregation, search.bounds, choice)
        if plan is not None:
            yield plan


def _quick(search: Search) -> Iterator[Candidate]:
    """The greedy's quick plan from the search for the number of chunks."""
    if search.quick.plan is not None:
        yield search.quick.plan


def _trees(search: Search) -> Iterator[Candidate]:
    """Packed spanning trees, where they may be faster than the best."""
    problem, asked, parameters = search.problem, search.asked, search.parameters.trees
    problems = [problem] if asked is None else map(asked.in_chunks, doubled_chunks(problem, parameters))
    plan = plan_on_trees(problems, search.stage(), search.question, search.end_s, parameters)
    if plan is not None:
        yield plan


def _matching(search: Search) -> Iterator[Candidate]:
    """Matching with restarts: briefly for some numbers of chunks, then for long in the best of them."""
    problem, parameters, bounds = search.problem, search.parameters, search.bounds
    if search.asked is not None:
        quick = best_matching(search.asked, problem.chunks, search.question, search.stage(), parameters)
        if quick is None or quick.plan is None:
            return
        yield quick.plan
        problem, bounds = quick.problem, quick.bounds or bounds
        if search.is_over or quick.end_s > parameters.matching.hopeless_factor * search.end_s:
            return
    plan = matched_plan(problem, search.stage(), parameters.matching, bounds)
    if plan is not None:
        yield plan


def _is_for_many(problem: Chunked) -> bool:
    """Whether matchings are of use: some chunk is for more than one rank, or is a sum."""
    is_for_one = not problem.collective.reduces and max(map(len, problem.collective.destinations)) <= 1
    return problem.path_slack is None and not is_for_one and may_be_matched(problem)


def _greedy(search: Search) -> Iterator[Candidate]:
    """The greedy, unless the best plan chunk by chunk is good enough, or hopeless."""
    problem, known, greedy = search.problem, search.by_chunks, search.parameters.greedy
    if not search.is_alone:
        if known is not None and known.gap is not None and known.gap <= search.options.gap:
            return
        if known is not None and known.end_s > greedy.hopeless_factor * search.end_s:
            return
        is_first = known is None or known is search.quick.plan
        if is_first and problem.routing_binaries <= search.parameters.milp.most_binaries:
            greedy = replace(greedy, rows=greedy.rows_of_small)
    plan = plan_greedy(problem, search.stage(1.0), greedy, bounds=search.bounds)
    if plan is not None:
        yield plan


def _milp(search: Search) -> Iterator[Candidate]:
    """The MILP: alone, under a sketch, or where nothing else can plan it; with a path slack, where it is small."""
    problem = search.quick.for_milp or search.problem
    is_asked = search.is_alone or "milp" in search.parameters.methods.only
    is_needed = is_asked or problem.sketch is not None or not may_be_greedy(problem)
    if is_needed or problem.routing_binaries <= search.parameters.milp.most_binaries:
        bounds = search.bounds if problem is search.problem else None
        stage = search.stage(1.0) if search.is_alone else search.stage()
        plan = synthesise(problem, stage, search.parameters.milp, bounds)
        if plan is not None:
            yield replace(plan, problem=problem)


def _any(problem: Chunked) -> bool:
    return True


_AGGREGATED = _Method("aggregated", _any, _aggregated, VARIANTS)
_QUICK = _Method("greedy", _any, _quick)
_TREES = _Method("trees", may_pack_trees, _trees)
_MATCHING = _Method("matching", _is_for_many, _matching)
_GREEDY = _Method("greedy", lambda problem: problem.method == "greedy" or may_be_greedy(problem), _greedy)
_MILP = _Method("milp", _any, _milp)
NAMES = ("first", *VARIANTS, "trees", "matching", "greedy", "milp")
"""What parameter files call them."""
