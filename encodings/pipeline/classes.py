"""Classes: the bounds of the classes of plans that a question is in, and what a wider question comes to.

A question names a placement (linear, if nothing is said), and may name a cut. What is proven of those is said beside
what holds for every placement and every cut of the same layers on the same ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.checker import check
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.placement.named import PLACEMENTS, copies_of
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.programs.lowering import to_schedule
from gapless.encodings.pipeline.search.search import Search
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile, uniform_profile
from gapless.solution import Bound, PlanClass
from gapless.system import Challenge, Narrowing

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["LEAST_GAIN", "SHARE", "any_placement_s", "challenges", "class_bounds", "narrowing", "wider"]

SHARE = 0.025
"""Of the work on cuts: what is spent on those that the question leaves out."""
_CHUNKS = 2
"""Stages a rank of the other placements that are tried."""
LEAST_GAIN = 0.01
"""What is worth a line: so much less than the plan takes, as a share."""


def any_placement_s(problem: Problem) -> tuple[float, str]:
    """Seconds that no plan takes less, or no longest span, however layers are cut and placed; and the bound's name.

    `load`: all ranks together compute all layers, and all but those that have the first layer wait for its first
    forward: one rank, or two where two copies of the model can be placed; where a backward is whole, its last one is
    the first layer's, too. `path`: one micro-batch, there and back. Layers that
    are made up for a number of stages can be cut as finely as one likes, so that nobody waits; nor does a span of the
    others begin before they have what they wait for. Of steps that follow one another each has the whole load, and the
    first rank begins each after the path of the last. Where backwards may be split or not, of both the lower one.
    """
    total, problem = problem.total_work, problem.relaxed
    shapes = problem.shapes(problem.recomputation == "all")
    return min(_any_placement_s(problem, splits, total) for splits in shapes)


def _any_placement_s(problem: Problem, splits: bool, total: float) -> tuple[float, str]:
    """Of plans that split backwards, or don't."""
    profile, ranks, is_whole = problem.profile, problem.ranks, not splits
    firsts = copies_of("bidirectional") if _is_bidirectional_possible(problem) else 1
    others = 0 if profile.is_uniform or problem.by_span else ranks - firsts
    first, each = problem.shares.least, problem.shares.most  # of slices: the first to come, one there and back
    backward_s, weight_s = profile.backwards_s(splits)
    own_s = profile.forward_s + backward_s + weight_s
    last_s = own_s[0] - profile.forward_s[0] if is_whole else 0.0
    load_s = (problem.steps * total * own_s.sum() + others * first * (profile.forward_s[0] + last_s)) / ranks
    path_s = each * (own_s.sum() if is_whole else (profile.forward_s + profile.backward_s).sum())
    return max((float(load_s), "load"), (problem.steps * float(path_s), "path"))


def class_bounds(problem: Problem, search: Search) -> tuple[float, str, list[Bound]]:
    """The bound of the question with its name, and those of the narrower classes that it keeps the search to."""
    found: list[Bound] = []
    if problem.cut != "auto" and problem.stage_count not in (1, problem.profile.layer_count):
        name = "with this cut" if isinstance(problem.cut, tuple) else f"with cut {problem.cut}"
        found.append(Bound(PlanClass.CUT, search.bound_s, _source(search), name))
        of_placement_s, source = search.least_s(SHARE), "cut"
    else:
        of_placement_s, source = search.bound_s, _source(search)
    widest = any_placement_s(problem)
    if not has_placements(problem):
        return (*max(widest, (of_placement_s, source)), found)
    is_said = problem.chunks == problem.copies or not isinstance(problem.placement, str)
    stages = "" if is_said else f" of {problem.chunks} stages a rank"
    found.append(Bound(PlanClass.PLACEMENT, of_placement_s, source, f"with {_name(problem)}{stages}"))
    return (*widest, found)


def _name(problem: Problem) -> str:
    return f"{problem.placement} placement" if isinstance(problem.placement, str) else f"placement {problem.placed}"


def has_placements(problem: Problem) -> bool:
    """Whether the layers could be placed otherwise: on several ranks, in more stages than those."""
    profile = problem.profile
    if _is_bidirectional_possible(problem):
        return True
    return problem.ranks > 1 and (profile.is_uniform or profile.layer_count >= _CHUNKS * problem.ranks)


def _is_bidirectional_possible(problem: Problem) -> bool:
    """Whether two copies of the model could be placed."""
    return not problem.ranks % 2 and not problem.micro_batches % 2


def _source(search: Search) -> str:
    """What proves the bound of a search: of the case that bounds it, the highest."""
    case = min(search.cases, key=lambda each: each.bound_s, default=None)
    if case is None or case.bound_s > search.bound_s:
        return "cut"
    return max(case.bounds_s, key=case.bounds_s.__getitem__)


def wider(
    problem: Problem, cost_s: float, options: SolveOptions, parameters: Parameters, deadline: Deadline
) -> dict[str, object] | None:
    """What a question without this cut, or in another placement, comes to by the schedules of the field and a short run
    of the heuristic on one cut; None where none of them is clearly shorter than `cost_s`, and where the clock ends it.
    """
    limit_s = None if deadline.remaining_s == float("inf") else deadline.remaining_s
    own = Deadline(replace(options, time_limit_s=limit_s, within_deadline=None, on_progress=None, on_plan=None))
    partial_cuts = max(1, int(SHARE * parameters.partial_cuts))
    quick, best = replace(parameters, ordered_cuts=1, partial_cuts=partial_cuts), None
    for said, question in _wider_questions(problem):
        if own.over:
            return None
        search = Search(question, own.stage(), own, quick, lambda found: None)
        search.run(is_quick=True)
        if search.best is not None and search.best.timeline.cost_s < (1 - LEAST_GAIN) * cost_s:
            cost_s, best = search.best.timeline.cost_s, (said, question, search.best)
    if best is None or own.has_struck:
        return None
    said, question, found = best
    if not check(to_schedule(question, found.stages, found.order, found.timeline, None)).valid:
        return None
    return {"asked": said, f"objective_{problem.unit}": cost_s, "method": found.method, "cut": list(found.cut)}


def _wider_questions(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Without the cut; then in other placements, evenly cut: there are too many cuts of many stages to look at."""
    plain = replace(problem, compression=None, error_budget=0.0, method="auto", cut="auto", starts=())
    if problem.cut != "auto":
        yield "without --cut", plain
    for placement in PLACEMENTS if has_placements(problem) else ():
        chunks = 1 if placement == "linear" else _CHUNKS
        if (placement, chunks) == (problem.placement, problem.chunks):
            continue
        try:
            profile = _with_stages(problem, chunks // copies_of(placement))
            even = replace(plain, placement=placement, chunks=chunks, profile=profile, cut="even")
            yield f"with --placement {placement}", even
        except InputError:  # ranks that would be neighbours have no link, or there are too many ops
            continue


def _with_stages(problem: Problem, chunks: int) -> PipelineProfile:
    """The profile; of equal layers that are made up for a number of stages, the same work for another number."""
    profile, own = problem.profile, problem.chunks // problem.copies
    if not profile.is_uniform:
        return profile
    f_s, b_s, w_s = (column[0].item() * own for column in (profile.forward_s, profile.backward_s, profile.weight_s))
    return uniform_profile(f_s, b_s, w_s, problem.ranks, chunks, profile.name)


def narrowing(problem: Problem, said: Mapping[str, object]) -> list[Narrowing]:
    """A placement, which is the linear one where nothing is said; a cut, but for the rule that leaves it open."""
    found = [] if problem.alternatives else [Narrowing(PlanClass.PLACEMENT, {"placement": None, "chunks": None})]
    if not isinstance(problem.cut, str) or problem.cut == "even":
        found.append(Narrowing(PlanClass.CUT, {"cut": None}))
    return found


def challenges(problem: Problem, plan: SavedPlan) -> list[Challenge]:
    """The other placements, with as few stages on a rank as each has; and any cut, for the rule of the bottleneck."""
    found = [
        Challenge(
            f"--placement {name}", PlanClass.QUESTION,
            {"placement": name, "chunks": None, "method": None, "cut": problem.cut if problem.cut == "even" else None},
        )
        for name in (PLACEMENTS if not problem.alternatives else ())
        if name != problem.placement
    ]  # fmt: skip
    if problem.cut == "bottleneck":
        found.append(Challenge("without --cut", PlanClass.PLACEMENT, {"cut": None}))
    return found
