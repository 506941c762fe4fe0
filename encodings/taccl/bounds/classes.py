"""Classes: the bounds of the classes of plans that a question is in, from any plan of it to those in its own chunks.

A sketch, or a number of chunks, keeps a search to a part of the plans that a user would take. So what is proven of that
part is said beside what holds for every plan of the same collective, topology and size: on all links, cut at will.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of, class_name
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked
from gapless.solution import Bound, PlanClass, settled_bound

__all__ = ["QuestionBounds"]


class QuestionBounds:
    """The bounds of a question by class; `asked`: those of it as it is asked, under its sketch in its chunks.

    `coarsest`: the question uncut, whose bytes its chunks may be rounded up from. `has_ended`: whether the search has
    ended in time, so that what no method needs may be worked out.
    """

    def __init__(self, asked: Bounds, coarsest: Chunked | None = None) -> None:
        self.asked, self.has_ended = asked, False
        # A plan for fewer bytes, all its times stretched in proportion, is one for more.
        self._share = min(1.0, _bytes(coarsest or asked.problem) / _bytes(asked.problem))

    @property
    def makes_more(self) -> bool:
        """Whether the sketch has links that the topology hasn't, such as planes of a switch."""
        return self.asked.problem.machine is not self.asked.problem.topology

    @cached_property
    def on_all_links(self) -> Bounds:
        """The bounds of the topology's own plans."""
        problem, asked = self.asked.problem, self.asked
        if not self.makes_more:
            return asked
        topology = Chunked(problem.topology, problem.collective, problem.chunk_bytes)
        return bounds_of(topology, asked.parameters, asked.options)

    @cached_property
    def under_sketch(self) -> Bounds:
        """The bounds of plans on the sketch's links, whichever chunk may use them."""
        problem, asked = self.asked.problem, self.asked
        if self.makes_more:
            return asked
        logical = Chunked(problem.logical.topology, problem.collective, problem.chunk_bytes)
        return bounds_of(logical, asked.parameters, asked.options)

    @property
    def widest(self) -> tuple[float, str]:
        """Seconds that no plan of the question takes less, and what says so: of what has been worked out so far.

        Where a sketch has links of its own, neither plans on those nor plans on the topology's take less.
        """
        bound_s, source = self._any_chunking(self.on_all_links)
        if self.makes_more:
            bound_s, source = min((bound_s, source), self._any_chunking(self.asked))
        return self._share * bound_s, source

    @property
    def sketch(self) -> Bound | None:
        """The bound of plans that keep to the sketch, in any number of chunks."""
        sketch = self.asked.problem.sketch
        if sketch is None:
            return None
        bound_s, source = self._any_chunking(self.under_sketch)
        return Bound(PlanClass.SKETCH, self._share * bound_s, source, f"under sketch {sketch.name}")

    def narrower(
        self, plan: Candidate, class_bounds_s: Mapping[str, float], is_alone: bool
    ) -> list[Bound]:  # fmt: skip
        """Bounds of the classes that the question keeps the search to, and of those in which the plan is optimal.

        `class_bounds_s`: by `class_name`. `is_alone`: a single method is asked for.
        """
        problem, end_s = plan.problem, plan.end_s
        found = [self.sketch] if self.has_ended else []
        for is_grouped in (True, False):
            bound_s = class_bounds_s.get(class_name(problem, is_grouped))
            is_in_class = is_grouped or (not plan.is_grouped and problem.path_slack is None)
            if bound_s is None or not is_in_class:
                continue
            is_asked = not self.asked.problem.may_cut and (is_grouped or is_alone)
            if is_asked or settled_bound(end_s, bound_s) == end_s:
                source = self._source_of(bound_s) or plan.solver
                plans = PlanClass.CHUNKS if is_grouped else PlanClass.ALONE
                found.append(Bound(plans, bound_s, source, _chunks_name(problem, is_grouped)))
        return [one for one in found if one is not None]

    def _source_of(self, bound_s: float) -> str:
        """Which bound of the question itself has this value; empty for none that has been worked out."""
        known: list[Mapping[str, float]] = [
            self.asked.__dict__.get(name, {}) for name in ("any_chunking", "quick_any_grouping", "any_grouping")
        ]
        return next((name for bounds_s in known for name, one_s in bounds_s.items() if one_s == bound_s), "")

    def _any_chunking(self, bounds: Bounds) -> tuple[float, str]:
        one_sum_s = bounds.__dict__.get("one_sum_s", 0.0)  # where a search has taken the time for it
        return _largest({**bounds.any_chunking, "one_sum": one_sum_s})


def _bytes(problem: Chunked) -> int:
    return problem.chunk_bytes * problem.collective.chunk_count


def _largest(bounds_s: Mapping[str, float]) -> tuple[float, str]:
    """The largest of some bounds, with its name."""
    name = max(bounds_s, key=bounds_s.__getitem__)
    return bounds_s[name], name


def _chunks_name(problem: Chunked, is_grouped: bool) -> str:
    """What the class of plans in a problem's chunks is called, after "plans"."""
    chunks = f"in {problem.chunks} chunk" + ("s" if problem.chunks != 1 else "")
    apart = "" if is_grouped else ", one at a time inside nodes," if problem.may_group.any() else ", one at a time,"
    sketch = "" if problem.sketch is None else f" under sketch {problem.sketch.name}"
    return f"{chunks}{apart}{sketch}".removesuffix(",")
