"""Solving a question: a first plan, bounds, a number of chunks, the methods in turn (`methods.py`), and the answer.

With `--sketch auto` all of this is done for many sketches, side by side (`sketch/search.py`).

Once a plan is proven within the gap of the question's bound, nothing else is tried: by the bounds that are worked out
at once, or else by all of them. What methods take is the work that `parameters.py` allows: none looks at the clock, but
to end where the time limit does. Of a limit, a method takes at most a part where others follow. Each method ends with
the best that it has, and the decision of the answer says whose plan won, in which variant and in how many chunks.

The bound of the answer is for the question: for any chunking, grouping and routing, on all links. A sketch or a number
of chunks keeps the search to narrower classes of plans, whose bounds stand beside it (`bounds/classes.py`); the search
ends where they leave no more than the gap. A method knows bounds for its own class. They end its search and say whether
the next method can do better; `details["bounds_s"]` has them by class. What the question without its sketch would come
to is tried at the end, in little work: where it has a better plan within that, this is said beside the answer. Where a
plan is challenged, the collective is asked for in other ways: in other chunks, without its sketch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from gapless.encodings.taccl.aggregate.stage import may_aggregate, plan_aggregated
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.bounds.classes import QuestionBounds
from gapless.encodings.taccl.candidate import Candidate, CollectiveDecision, checked
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.chunking import Quick, best_chunking
from gapless.encodings.taccl.flow.first import first_plan
from gapless.encodings.taccl.flow.restarts import matched_plan
from gapless.encodings.taccl.methods import NAMES, methods_for, needs_other_roots
from gapless.encodings.taccl.milp.routers import routing_model
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.repair.earlier import Earlier
from gapless.encodings.taccl.repair.mending import mended
from gapless.encodings.taccl.search import PART, Search, no_plan
from gapless.encodings.taccl.sketch.search import search_sketches
from gapless.encodings.taccl.switches.answer import solve_with_switches
from gapless.encodings.taccl.unequal.problem import Unequal
from gapless.encodings.taccl.unequal.solve import solve_unequal
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.methods import run_methods
from gapless.model import Model
from gapless.options import Deadline, SolveOptions, relative_gap
from gapless.solution import PlanClass
from gapless.system import Challenge, Narrowing, Plan

__all__ = ["challenges", "in_chunks", "model_of", "narrowing", "solve", "solve_chunked", "wider_question", "with_wider"]


def solve(problem: Problem | Chunked | Unequal, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """The best plan for a question, whose sketch and number of chunks may have to be found first."""
    parameters = parameters or Parameters()
    parameters.methods.check(NAMES)
    if isinstance(problem, Unequal):
        return solve_unequal(problem, options, parameters, solve_chunked)
    if isinstance(problem, Chunked):  # its chunks are sent
        if problem.topology.switch_groups:
            problem = replace(problem, topology=problem.topology.without_switch_groups())
        return solve_chunked(problem, options, parameters)
    if problem.topology.switch_groups:
        return solve_with_switches(problem, options, parameters, solve)
    if problem.searches_sketches:
        return search_sketches(problem, options, parameters, _first_alone, solve_chunked)
    if problem.earlier is not None:
        return _repaired(problem, problem.earlier, options, parameters)
    deadline = Deadline(options)
    _check_solver(problem.coarsest, options)
    first = first_plan(problem.coarsest, deadline)
    if first is None and deadline.has_struck:
        return no_plan(problem.coarsest, options, deadline)
    bounds = _bounds(problem.coarsest, deadline, parameters)
    quick = Quick(problem.coarsest)
    if not _spares_chunking(problem, first, bounds, options, parameters):
        quick = _quick_plan(problem, bounds, deadline.stage(PART * deadline.remaining_s), parameters)
    if not parameters.methods.allows("greedy"):
        quick = replace(quick, plan=None)
    classes = QuestionBounds(bounds, wider_question(problem).coarsest)
    asked = problem if problem.is_open else None
    plan = _searched(quick, first, classes, deadline, options, parameters, asked)
    return with_wider(plan, problem, classes.on_all_links, options, parameters, deadline)


def _repaired(problem: Problem, earlier: Earlier, options: SolveOptions, parameters: Parameters) -> Plan:
    """An earlier plan, mended; where that isn't near its bound, the best of it and of fresh plans of little work."""
    deadline, repair = Deadline(options), parameters.repair
    chunked = problem.in_chunks(earlier.chunks)
    bounds = _bounds(problem.coarsest, deadline, parameters)
    bound_s = bounds.quick_asked_s
    best = mended(chunked, earlier, repair, deadline, bound_s * (1 + min(repair.close, options.gap)))
    near_s, is_weak = (1 + repair.near) * bound_s, False
    if best.end_s > near_s:
        fresh = _matched_briefly(chunked, bounds, deadline, parameters)
        best = fresh if fresh is not None and fresh.is_faster(best) else best
    if best.end_s > near_s:
        first = first_plan(problem.coarsest, deadline)
        is_weak = first is not None and first.is_faster(best)
        best = first if first is not None and is_weak else best
    classes = QuestionBounds(bounds, wider_question(problem).coarsest)
    asked = problem if problem.is_open else None
    search = Search(
        best.problem, options, parameters.with_share(repair.share), deadline, best, Quick(best.problem, bounds=bounds),
        classes, asked,
    )  # fmt: skip
    search.announce(best)
    search.note_bound(search.question.quick_asked_s)
    search.widest_s = classes.widest
    if is_weak:
        run_methods(methods_for(search), search.problem, search)
    found = search.answer()
    is_as_large = abs(earlier.input_bytes - problem.size_bytes) <= _ROUNDED * problem.size_bytes
    before_s = earlier.end_s if is_as_large else None
    known = {"before_s": before_s, "end_s": found.solution.objective, "bound_s": search.widest_s[0]}
    return replace(found, details={**found.details, "repair": known})


def _matched_briefly(problem: Chunked, bounds: Bounds, deadline: Deadline, parameters: Parameters) -> Candidate | None:
    """The best of a few matchings; None where the parameters leave them out, or one alone takes more work than that."""
    if not parameters.methods.allows("matching") or deadline.over:
        return None
    stage, matching = deadline.stage(PART * deadline.remaining_s), parameters.matching
    of_cut = bounds_of(problem, parameters.bounds, stage, question=bounds)
    brief = replace(matching, sends=min(matching.sends, parameters.repair.matched_sends))
    return matched_plan(problem, stage, brief, of_cut, is_quick=True)


def _spares_chunking(
    problem: Problem, first: Candidate | None, bounds: Bounds, options: SolveOptions, parameters: Parameters
) -> bool:
    """Whether no number of chunks is worth a search: the first plan is near the bound, or sums need other roots."""
    is_alone = problem.method != "auto" or options.solver is not None
    if is_alone or problem.path_slack is not None:
        return False
    if problem.is_open and needs_other_roots(bounds, parameters):
        return True
    if first is None or not parameters.methods.allows("first"):
        return False
    gap = relative_gap(first.end_s, bounds.quick_asked_s)
    return gap is not None and gap <= min(options.gap, parameters.chunking.spared_gap)


def _first_alone(problem: Chunked, deadline: Deadline) -> Plan | None:
    """The first plan, with its own bound."""
    first = first_plan(problem, deadline)
    return None if first is None else first.plan(deadline.stage(), deadline)


def in_chunks(
    problem: Problem, options: SolveOptions, parameters: Parameters | None = None, for_milp: bool = False
) -> Chunked:
    """The problem in the chunks that are asked for, or in as many as the greedy does best with, or the MILP takes."""
    parameters = parameters or Parameters()
    quick = _quick_plan(problem, _bounds(problem.coarsest, Deadline(options), parameters), options, parameters)
    return (quick.for_milp if for_milp else None) or quick.problem


def model_of(problem: Problem | Unequal) -> Model:
    """The routing MILP of a question, for writing to a file. Raises `InputError` where shares are unlike."""
    if isinstance(problem, Unequal):
        raise InputError(f"collective: the routing model is for chunks of one size, got {problem.amounts.collective}")
    return routing_model(in_chunks(problem, problem.default_options, for_milp=True))


def _quick_plan(problem: Problem, bounds: Bounds, options: SolveOptions, parameters: Parameters) -> Quick:
    """The problem in so many chunks, with what there is of a plan for them. `bounds`: of the question."""
    if not problem.is_open:
        return Quick(problem.coarsest)
    quick = best_chunking(problem, bounds, options, parameters)
    return quick if problem.path_slack is None else Quick(quick.problem, for_milp=quick.for_milp)


def _bounds(problem: Chunked, deadline: Deadline, parameters: Parameters) -> Bounds:
    """The bounds of a question, over all paths."""
    over_all_paths = problem if problem.path_slack is None else replace(problem, path_slack=None)
    return bounds_of(over_all_paths, parameters.bounds, deadline.stage())


def solve_chunked(problem: Chunked, options: SolveOptions, parameters: Parameters) -> Plan:
    """The best plan of the problem's method, or with `auto` of all of them, for chunks that are decided.

    Raises `InputError` where the greedy is asked for, and a solver with it.
    """
    deadline = Deadline(options)
    _check_solver(problem, options)
    first = first_plan(problem, deadline)
    if first is None and deadline.has_struck:
        return no_plan(problem, options, deadline)
    bounds = _bounds(problem, deadline, parameters)
    return _searched(Quick(problem, bounds=bounds), first, QuestionBounds(bounds), deadline, options, parameters)


def _check_solver(problem: Chunked, options: SolveOptions) -> None:
    if problem.method == "greedy" and options.solver is not None:
        raise InputError(f"solver: must be left out with method greedy, which takes none; got {options.solver!r}")


def _searched(
    quick: Quick,
    first: Candidate | None,
    classes: QuestionBounds,
    deadline: Deadline,
    options: SolveOptions,
    parameters: Parameters,
    asked: Problem | None = None,
) -> Plan:
    """The methods in turn, after a first plan and, of the greedy, a quick one.

    `classes`: the bounds of the question. `asked`: where nobody has said into how many chunks data are cut.
    """
    if quick.problem.method == "milp" or options.solver is not None:
        quick = Quick(quick.for_milp or quick.problem, bounds=None if quick.for_milp else quick.bounds)
    search = Search(quick.problem, options, parameters, deadline, first, quick, classes, asked)
    search.announce(first)
    search.note_bound(search.question.quick_asked_s)
    search.widest_s = classes.widest
    run_methods(methods_for(search), search.problem, search)
    return search.ended()


_ROUNDED = 0.01
"""Of buffers: so much two plans may differ in that are for as many bytes, each rounded up to whole chunks."""
_NARROWING = ("sketch", "chunks", "path_slack", "method")
_SKETCH = ("sketch", "sketch_file", "path_slack")
_CHUNKS = (1, 2, 4, 8)
"""Numbers that a challenge tries besides the plan's own: those that the search for a number tries first."""


def wider_question(problem: Problem) -> Problem:
    """The question without them."""
    return replace(problem, sketch=None, chunks=None, path_slack=None, method="auto", earlier=None)


def with_wider(
    plan: Plan,
    problem: Problem,
    on_all_links: Bounds,
    options: SolveOptions,
    parameters: Parameters,
    deadline: Deadline,
) -> Plan:
    """The same plan; where the question without its narrowing options has a better one, `details["wider"]` says so.

    `on_all_links`: bounds of the topology's own plans. Nothing is tried where they leave too little to gain, and
    nothing is said where the clock ends it.
    """
    names = [f"--{name.replace('_', '-')}" for name in _NARROWING if getattr(problem, name) not in (None, "auto")]
    end_s = plan.solution.objective
    if not names or end_s is None or deadline.over:
        return plan
    worth_s = end_s * (1 - parameters.wider.least_gain)
    if on_all_links.any_chunking_s >= worth_s:
        return plan
    limit_s = None if math.isinf(deadline.remaining_s) else deadline.remaining_s
    own = Deadline(
        replace(options, time_limit_s=limit_s, within_deadline=None, on_progress=None, on_plan=None, solver=None)
    )
    question = wider_question(problem)
    best = _best_of(question, _reused(on_all_links, question.coarsest), own, parameters, worth_s)
    if best is None or best.end_s >= worth_s or own.has_struck or options.stop.is_set():
        return plan
    checked(best.schedule)
    found = {"objective_s": best.end_s, "method": best.method, "chunks": best.problem.chunks}
    return replace(plan, details={**plan.details, "wider": {"asked": f"without {' and '.join(names)}", **found}})


def _reused(bounds: Bounds, coarsest: Chunked) -> Bounds:
    """Bounds of the coarsest problem, whose part for any chunking is known where it has as many bytes."""
    known = bounds.problem
    is_same = known.chunk_bytes * known.collective.chunk_count == coarsest.chunk_bytes * coarsest.collective.chunk_count
    return bounds_of(coarsest, bounds.parameters, bounds.options, question=bounds if is_same else None)


def _best_of(
    question: Problem, bounds: Bounds, deadline: Deadline, parameters: Parameters, worth_s: float
) -> Candidate | None:
    """The quick plan of the greedy in few numbers of chunks; aggregated sends where it isn't better than `worth_s`."""
    less = _with_less(parameters)
    best = best_chunking(question, bounds, deadline.stage(), less).plan
    if (best is None or best.end_s >= worth_s) and may_aggregate(question.coarsest, less.aggregation):
        best = plan_aggregated(question.coarsest, deadline.stage(), less.aggregation, bounds) or best
    return best


def _with_less(parameters: Parameters) -> Parameters:
    """A part of the work."""
    wider = parameters.wider
    less = parameters.with_share(wider.share)
    chunking = replace(less.chunking, numbers=wider.numbers, most_numbers=len(wider.numbers))
    return replace(less, chunking=chunking, aggregation=parameters.with_share(wider.aggregated_share).aggregation)


def narrowing(problem: Problem | Chunked | Unequal, said: Mapping[str, object]) -> list[Narrowing]:
    """A sketch or a slack of paths; chunks. A search over sketches keeps to none."""
    found: list[Narrowing] = []
    if isinstance(problem, Chunked | Unequal):  # what an answer solved, or a question that nothing narrows
        return found
    if not problem.searches_sketches and any(name in said for name in _SKETCH):
        found.append(Narrowing(PlanClass.SKETCH, _without_sketch(problem, said)))
    if problem.chunks is not None:
        found.append(Narrowing(PlanClass.CHUNKS, {"chunks": None}))
    return found


def _without_sketch(problem: Problem, said: Mapping[str, object]) -> dict[str, object]:
    """The question without its sketch, which may have said how many nodes and bytes there are."""
    outright: dict[str, object] = {"size": problem.size_bytes}
    sketch = problem.sketch
    if sketch is not None and not isinstance(sketch, str) and ("topology" in said or "topology_file" in said):
        outright["nodes"] = said.get("nodes", sketch.node_count or 1)
    return {**dict.fromkeys(_SKETCH), **outright}


def challenges(problem: Problem | Chunked | Unequal, plan: SavedPlan) -> list[Challenge]:
    """Other numbers of chunks, and the plan's own number outright, in which its bound for these chunks can be met."""
    if isinstance(problem, Chunked | Unequal):
        return []
    if problem.searches_sketches:
        return [Challenge("without --sketch", PlanClass.QUESTION, _without_sketch(problem, {"topology": ""}))]
    keeps_to = [PlanClass.SKETCH] if problem.sketch is not None or problem.path_slack is not None else []
    around = (keeps_to or [PlanClass.QUESTION])[0]
    own = CollectiveDecision.of(plan).chunks
    numbers = [each for each in _CHUNKS if each != own]
    found = [Challenge(f"--chunks {number}", around, {"chunks": number}) for number in numbers]
    if problem.chunks is None:
        found.append(Challenge(f"--chunks {own}", PlanClass.CHUNKS, {"chunks": own}))
    return found
