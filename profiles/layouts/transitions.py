"""Changes of a tensor's layout on a mesh, step by step: which collective along which axis, and what it sends.

`layouts.py` says what a layout is. Parts are even. Where several axes split one dimension, an earlier axis makes the
larger parts; what a later axis has split is put together before the earlier one can change.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from gapless.errors import InputError
from gapless.profiles.layouts.layouts import is_partial, split_dimension

__all__ = ["Step", "check_layout", "local_shape", "next_steps", "sent_by", "steps_between"]

_ROUNDS = {"all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "all_reduce": 2}
"""How often a ring sends all parts but one."""


@dataclass(frozen=True)
class Step:
    """One change along one axis of the mesh, which all groups of ranks along this axis make at once.

    `kind`: "all_gather", "reduce_scatter", "all_to_all", "all_reduce"; or local: "slice", and "split", of a whole into
    terms of a sum. `before`, `after`: the parts of the layouts on this axis. `size_bytes`: what a rank holds of the
    tensor before; `sent_bytes`: what it sends, in a ring.
    """

    kind: str
    axis: int
    before: str
    after: str
    size_bytes: int
    sent_bytes: int


def local_shape(shape: tuple[int, ...], layout: str, mesh: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of each device's part of a tensor.

    Raises `InputError` where the tensor can't have this layout, or parts would be uneven.
    """
    sizes = list(shape)
    for part, devices in zip(layout.split(","), mesh, strict=True):
        dimension = split_dimension(part)
        if dimension is None:
            continue
        if dimension >= len(sizes) or sizes[dimension] % devices:
            rule = f"layout {layout} of a tensor of shape {list(shape)}: {part} must split a dimension evenly"
            raise InputError(f"{rule} over {devices} devices")
        sizes[dimension] //= devices
    return tuple(sizes)


def check_layout(layout: str, mesh: tuple[int, ...]) -> None:
    """Raises `InputError` for a part that no change of layouts knows."""
    for part in layout.split(","):
        if part not in ("R", *_PARTIAL) and not (part.startswith("S") and part[1:].isdecimal()):
            raise InputError(f"layout {layout!r}: parts must be R, S and a dimension, {', '.join(_PARTIAL)}")


_PARTIAL = ("P", "P(avg)", "P(max)", "P(min)", "P(mask)")


def sent_by(step: Step) -> float:
    """The bytes that each rank sends in a step, as its cost."""
    return step.sent_bytes


def steps_between(
    source: str,
    target: str,
    shape: tuple[int, ...],
    item_bytes: int,
    mesh: tuple[int, ...],
    cost: Callable[[Step], float] = sent_by,
) -> tuple[Step, ...]:
    """The steps of least cost in all from one layout of a tensor to another; of equal ones, the fewest.

    Raises `InputError` for a layout that the tensor can't have.
    """
    return _steps(source, target, shape, item_bytes, mesh, cost)


@lru_cache(maxsize=2**16)
def _steps(
    source: str, target: str, shape: tuple[int, ...], item_bytes: int, mesh: tuple[int, ...],
    cost: Callable[[Step], float],
) -> tuple[Step, ...]:  # fmt: skip
    for layout in (source, target):
        check_layout(layout, mesh)
        local_shape(shape, layout, mesh)
    queue: list[tuple[float, int, int, str, tuple[Step, ...]]] = [(0.0, 0, 0, source, ())]
    done: set[str] = set()
    number = 0
    while queue:
        spent, count, _, now, taken = heapq.heappop(queue)
        if now == target:
            return taken
        if now in done:
            continue
        done.add(now)
        for step in next_steps(now, target, shape, item_bytes, mesh):
            parts = now.split(",")
            parts[step.axis] = step.after
            number += 1  # equals in the order in which they are found
            heapq.heappush(queue, (spent + cost(step), count + 1, number, ",".join(parts), (*taken, step)))
    raise InputError(f"layout {source}: nothing leads from it to {target}")


def next_steps(now: str, target: str, shape: tuple[int, ...], item_bytes: int, mesh: tuple[int, ...]) -> Iterator[Step]:
    """What can be done next on the way to a layout."""
    parts, wanted = now.split(","), target.split(",")
    local = local_shape(shape, now, mesh)
    size_bytes = item_bytes * math.prod(local)
    splits = [f"S{dimension}" for dimension in range(len(shape))]
    for axis, before in enumerate(parts):
        later = {split_dimension(part) for part in parts[axis + 1 :]} - {None}
        if split_dimension(before) in later:
            continue
        for after in sorted({"R", wanted[axis], *splits}):
            dimension, devices = split_dimension(after), mesh[axis]
            kind = _kind(before, after)
            if not kind or dimension in later or (dimension is not None and local[dimension] % devices):
                continue
            sent_bytes = _ROUNDS.get(kind, 0) * (devices - 1) * size_bytes
            whole = sent_bytes if kind == "all_gather" else -(-sent_bytes // devices)
            yield Step(kind, axis, before, after, size_bytes, whole)


def _kind(before: str, after: str) -> str:
    """Of the change of a part of a layout; empty where there is none in one step."""
    is_split, was_split = split_dimension(after) is not None, split_dimension(before) is not None
    if before == after or (is_partial(after) and before != "R"):
        return ""
    if is_partial(after):
        return "split"
    if is_partial(before):
        return "reduce_scatter" if is_split else "all_reduce"
    if was_split:
        return "all_to_all" if is_split else "all_gather"
    return "slice"
