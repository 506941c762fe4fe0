"""Policies of recomputation: what a stage keeps of a micro-batch from its forward to its backward, and what for.

A layer keeps all of its stash, or only its input, or what a policy of the profile says. A stage keeps only its own
input, or each of its layers has a policy: then its backward goes layer by layer, and each runs again what it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from gapless.encodings.pipeline.order.stages import STAGE_INPUT, Cut, Stages
from gapless.encodings.pipeline.problem import Problem
from gapless.profiles.pipelines.profile import INPUT, KEEP, PipelineProfile, Policy

__all__ = [
    "Choice",
    "StagePolicy",
    "are_all_choices",
    "choices_of",
    "curve_of",
    "least_kept_bytes",
    "next_to",
    "relaxed_of",
    "rerun",
]

_FRONT = 64
"""Policies of a stage at most."""
_TIE = 1e-12
"""Sums that differ by less than this share are equal."""


@dataclass(frozen=True)
class StagePolicy:
    """`kept_bytes`: of a micro-batch from its forward to its backward, which takes `again_s` longer for what it runs
    again, and holds `working_bytes` at most. `layers`: the policy of each layer by name; none where all keep all, and
    `stage input` alone where only the stage's input is kept.
    """

    kept_bytes: int
    again_s: float
    working_bytes: int
    layers: tuple[str, ...] = ()

    @property
    def recomputes(self) -> bool:
        """Whether it keeps less than all."""
        return bool(self.layers)


Choice = tuple[StagePolicy, ...]
"""One of each stage."""


def rerun(problem: Problem, cut: Cut, recomputes: Sequence[bool]) -> Choice:
    """Some stages keep their input alone, the others all."""
    ends = _ends(problem, cut)
    return tuple(_all_or_input(problem.profile, *end)[int(again)] for end, again in zip(ends, recomputes, strict=True))


def _ends(problem: Problem, cut: Cut) -> list[tuple[int, int]]:
    return list(pairwise((0, *cut, problem.profile.layer_count)))


def _all_or_input(profile: PipelineProfile, first: int, end: int) -> tuple[StagePolicy, StagePolicy]:
    stash, forward_s = int(profile.stash_bytes[first:end].sum()), float(profile.forward_s[first:end].sum())
    return StagePolicy(stash, 0.0, stash), StagePolicy(
        min(_input(profile, first), stash), forward_s, stash, (STAGE_INPUT,)
    )


def _input(profile: PipelineProfile, layer: int) -> int:
    return int(profile.boundary_bytes[layer - 1]) if layer else 0


def _of_layer(profile: PipelineProfile, layer: int) -> list[Policy]:
    """Those of a layer that no other is better than in both time and bytes, the fastest first."""
    stash, forward_s = int(profile.stash_bytes[layer]), float(profile.forward_s[layer])
    own = profile.policies[layer] if profile.policies else ()
    keep, again = Policy(KEEP, stash, 0.0, stash), Policy(INPUT, min(_input(profile, layer), stash), forward_s, stash)
    found: list[Policy] = []
    for policy in sorted((keep, *own, again), key=lambda each: (each.again_s, each.kept_bytes)):
        if not found or policy.kept_bytes < found[-1].kept_bytes:
            found.append(policy)
    return found


def least_kept_bytes(profile: PipelineProfile, layer: int) -> int:
    """Of a micro-batch from its forward to its backward, by the policy of the layer that keeps least."""
    return _of_layer(profile, layer)[-1].kept_bytes


def _curve(profile: PipelineProfile, first: int, end: int, splits: bool) -> tuple[tuple[StagePolicy, ...], bool]:
    """The policies of a stage, those that keep most first; and whether all that matter are there."""
    sums: list[tuple[int, float, tuple[Policy, ...]]] = [(0, 0.0, ())]
    is_whole = True
    for layer in range(first, end):
        grown = [(kept + each.kept_bytes, again_s + each.again_s, (*chosen, each))
                 for kept, again_s, chosen in reversed(sums) for each in _of_layer(profile, layer)]  # fmt: skip
        sums = []
        for one in sorted(grown, key=lambda one: (-one[0], one[1])):  # equal ones recompute their first layers
            while sums and sums[-1][1] >= one[1] * (1 - _TIE) and sums[-1][0] > one[0]:
                sums.pop()
            if not sums or one[0] < sums[-1][0]:
                sums.append(one)
        if len(sums) > _FRONT:
            is_whole, places = False, np.linspace(0, len(sums) - 1, _FRONT).round().astype(int)
            sums = [sums[place] for place in places.tolist()]
    keep, again = _all_or_input(profile, first, end)
    mixed = [_stage_policy(profile, first, splits, chosen) for _, again_s, chosen in sums if again_s]
    mixed = [each for each in mixed if each.kept_bytes > again.kept_bytes or each.working_bytes < again.working_bytes]
    return (keep, *mixed, again), is_whole


def _stage_policy(profile: PipelineProfile, first: int, splits: bool, chosen: tuple[Policy, ...]) -> StagePolicy:
    """The backward of a layer holds what it works on, what layers before it keep, and what later ones have left for
    their gradients of weights."""
    kept = np.cumsum([0, *(each.kept_bytes for each in chosen)]).tolist()
    left = profile.deferred_bytes[first : first + len(chosen)].tolist() if splits else [0] * len(chosen)
    working = max(kept[k] + each.working_bytes + sum(left[k + 1 :]) for k, each in enumerate(chosen))
    again_s = math.fsum(each.again_s for each in chosen)
    return StagePolicy(kept[-1], again_s, max(working, kept[-1]), tuple(each.name for each in chosen))


def curve_of(problem: Problem, cut: Cut, splits: bool) -> list[tuple[StagePolicy, ...]]:
    """The policies that the question leaves to each stage, those that keep most first."""
    ends = _ends(problem, cut)
    if problem.recomputation == "curve":
        return [_curve(problem.profile, *end, splits)[0] for end in ends]
    some = {"none": (0,), "all": (1,), "auto": (0, 1)}[problem.recomputation]
    both = [_all_or_input(problem.profile, *end) for end in ends]
    return [tuple(each[place] for place in some) for each in both]


def choices_of(problem: Problem, plain: Stages, cut: Cut, most: int) -> list[Choice]:
    """What stages may recompute, that which is run again shortest first; the first keeps most, the last least.

    `plain`: the stages where all keep all. Every choice where there are at most so many; of more only those that suit
    some number of micro-batches in flight.
    """
    curves = curve_of(problem, cut, plain.splits)
    if are_all_choices(problem, plain, cut, most):
        found = list(product(*curves))
    else:
        ends = [tuple(curve[place] for curve in curves) for place in (0, -1)]
        suited = [_in_flight(plain, curves, count) for count in range(2 * len(curves), 0, -1)]
        found = list(dict.fromkeys([*ends, *suited]))
    return sorted(
        found, key=lambda choice: (sum(one.again_s for one in choice), -sum(one.kept_bytes for one in choice))
    )


def are_all_choices(problem: Problem, plain: Stages, cut: Cut, most: int) -> bool:
    """Whether `choices_of` leaves nothing out."""
    return math.prod(map(len, curve_of(problem, cut, plain.splits))) <= most


def _in_flight(plain: Stages, curves: list[tuple[StagePolicy, ...]], count: int) -> Choice:
    """What stages run again to have room for so many micro-batches in flight on the first one, and fewer on each that
    follows: on each rank step by step what takes least time for its bytes.
    """
    depth, at = len(curves), [0] * len(curves)
    held = [min(plain.micro_batches, -(-count * (depth - stage) // depth)) for stage in range(depth)]
    messages = plain.forward_message_bytes[:depth]
    for rank in range(plain.ranks):
        here = np.flatnonzero(plain.rank[:depth] == rank).tolist()
        while here:
            now = [curves[stage][at[stage]] for stage in here]
            kept = sum(held[stage] * one.kept_bytes for stage, one in zip(here, now, strict=True))
            beside = max(one.working_bytes - one.kept_bytes for one in now) + max(messages[here])
            steps = [(_price(curves[stage], at[stage], held[stage]), stage) for stage in here
                     if at[stage] + 1 < len(curves[stage])]  # fmt: skip
            if kept + beside <= plain.room_bytes[rank] or not steps:
                break
            at[min(steps)[1]] += 1
    return tuple(curve[place] for curve, place in zip(curves, at, strict=True))


def _price(curve: tuple[StagePolicy, ...], place: int, held: int) -> float:
    """Seconds for each byte that the next policy saves."""
    now, then = curve[place], curve[place + 1]
    return (then.again_s - now.again_s) / max(held * (now.kept_bytes - then.kept_bytes), 1)


def next_to(problem: Problem, cut: Cut, splits: bool, choice: Choice) -> Iterator[Choice]:
    """Choices in which one stage has the policy that keeps a little less, or a little more."""
    for stage, curve in enumerate(curve_of(problem, cut, splits)):
        place = curve.index(choice[stage])
        for other in (place - 1, place + 1):
            if 0 <= other < len(curve):
                yield (*choice[:stage], curve[other], *choice[stage + 1 :])


def relaxed_of(problem: Problem, cut: Cut, splits: bool) -> list[list[StagePolicy]]:
    """Of each stage policies, real or not, such that every real one, whatever its layers do, has one here that keeps
    no more, runs no more again, and holds no more."""
    if problem.recomputation != "curve":
        return [list(curve) for curve in curve_of(problem, cut, splits)]
    return [_relaxed(problem.profile, *end, splits) for end in _ends(problem, cut)]


def _relaxed(profile: PipelineProfile, first: int, end: int, splits: bool) -> list[StagePolicy]:
    """The curve where it has all sums that matter, else between two of its points what keeps as the one and runs again
    as little as the other could: by the steepest parts of layers first, some of them in part."""
    curve, is_whole = _curve(profile, first, end, splits)
    layers = [_of_layer(profile, layer) for layer in range(first, end)]
    least = [min(each.kept_bytes for each in found) for found in layers]
    working = max(sum(least[:k]) + min(each.working_bytes for each in found) for k, found in enumerate(layers))
    found = [curve[0]]
    for before, each in pairwise(curve[:-1]):
        again_s = each.again_s if is_whole else _least_again_s(layers, before.kept_bytes)
        found.append(StagePolicy(each.kept_bytes, again_s, max(working, each.kept_bytes), each.layers))
    return [*found, *curve[-1:]]


def _least_again_s(layers: list[list[Policy]], kept_bytes: int) -> float:
    """No mix of layers that keeps less than so much runs less again."""
    parts: list[tuple[float, int]] = []
    for found in layers:
        place = 0
        while place + 1 < len(found):  # along the lower hull
            slopes = [((then.again_s - found[place].again_s) / (found[place].kept_bytes - then.kept_bytes), number)
                      for number, then in enumerate(found) if number > place]  # fmt: skip
            slope, after = min(slopes, key=lambda one: (one[0], -one[1]))
            parts.append((slope, found[place].kept_bytes - found[after].kept_bytes))
            place = after
    over, again_s = sum(found[0].kept_bytes for found in layers) - kept_bytes, 0.0
    for slope, size in sorted(parts):
        again_s += slope * max(min(size, over), 0)
        over -= size
    return again_s * (1 - _TIE)
