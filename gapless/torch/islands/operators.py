"""Eager islands in joint graphs: two opaque operators, which a plan's calls run as the islands' own functions.

The forward operator returns the island's outputs and a tensor in the place of what autograd keeps, of its size. So a
plan counts that memory, and lets it go, as it does any. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import getitem
from typing import Any

from gapless.torch.islands.island import Island
from gapless.torch.joint_graph import JointGraph
from gapless.torch.library import Node, Tensor, torch

__all__ = ["begin_sums", "island_outputs", "known_islands", "must_last", "running"]

_library = torch.library.Library("gapless", "FRAGMENT")
_library.define("island(Tensor[] given, int number, int[] sizes) -> Tensor[]", tags=[torch.Tag.nondeterministic_seeded])
_library.define(
    "island_backward(Tensor kept, Tensor[] needed, Tensor?[] gradients, Tensor?[] begun, int number, int[] sizes)"
    " -> Tensor[]"
)
_FORWARD, _BACKWARD = torch.ops.gapless.island.default, torch.ops.gapless.island_backward.default

_known: list[Island] = []
"""Those of the capture that is under way, by number."""


@contextmanager
def known_islands(islands: Sequence[Island]) -> Iterator[None]:
    """Let the operators stand for these islands, by number."""
    _known[:] = islands
    try:
        yield
    finally:
        _known.clear()


@torch.library.register_fake("gapless::island", lib=_library)  # type: ignore[untyped-decorator,unused-ignore]
def _outputs(given: Sequence[Tensor], number: int, sizes: Sequence[int]) -> list[Tensor]:
    island = _known[number]
    made = [each.empty() for each in island.outputs]
    device = next((tensor.device for tensor in (*made, *given)), torch.device("cpu"))
    return [*made, torch.empty(max(island.kept_bytes, 1), dtype=torch.uint8, device=device)]


@torch.library.register_fake("gapless::island_backward", lib=_library)  # type: ignore[untyped-decorator,unused-ignore]
def _gradients(
    kept: Tensor, needed: Sequence[Tensor], gradients: Sequence[Tensor | None], begun: Sequence[Tensor | None],
    number: int, sizes: Sequence[int],
) -> list[Tensor]:  # fmt: skip
    island = _known[number]
    return [island.given[place].empty() for place in island.wanted]


class _InGraph(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """What a tracer sees of an island."""

    @staticmethod
    def forward(ctx: Any, island: Island, number: int, *given: Tensor) -> tuple[Tensor, ...]:
        *outputs, kept = _FORWARD(list(given), number, [*island.peak_bytes])
        values = [*given[: island.argument_count], *outputs]
        ctx.save_for_backward(kept, *(values[place] for place in sorted(island.reads or ())))
        ctx.island, ctx.number, ctx.given_count = island, number, len(given)
        ctx.set_materialize_grads(False)
        flags = zip(outputs, island.outputs, strict=True)
        ctx.mark_non_differentiable(*(output for output, planned in flags if not planned.has_gradient))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        kept, *needed = ctx.saved_tensors
        begun = [None] * len(ctx.island.wanted)
        found = _BACKWARD(kept, needed, list(gradients), begun, ctx.number, [*ctx.island.peak_bytes])
        placed: list[Tensor | None] = [None] * ctx.given_count
        for place, gradient in zip(ctx.island.wanted, found, strict=True):
            placed[place] = gradient
        return None, None, *placed


def island_outputs(island: Island, number: int, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs of an island in a trace, of its tensors given."""
    if island.is_differentiable and island.wanted:
        outputs: tuple[Tensor, ...] = _InGraph.apply(island, number, *given)
        return outputs
    return tuple(_FORWARD([tensor.detach() for tensor in given], number, [*island.peak_bytes])[:-1])


def begin_sums(joint: JointGraph) -> None:
    """Let islands go on with sums of gradients that have begun: autograd adds what it finds in them one by one."""
    graph = joint.module.graph
    order = {node: number for number, node in enumerate(graph.nodes)}
    for total in list(graph.nodes):
        if total.target is not torch.ops.aten.add.Tensor or total.kwargs:
            continue
        begun, value = total.args
        if not isinstance(value, torch.fx.Node) or value.target is not getitem or value.args[0].target is not _BACKWARD:
            continue
        back, place = value.args
        island = _known[back.args[4]]
        is_argument = island.wanted[place] < island.argument_count
        if is_argument and len(value.users) == 1 and order[begun] < order[back] and back.args[3][place] is None:
            sums = [*back.args[3]]
            sums[place] = begun
            back.update_arg(3, sums)
            total.replace_all_uses_with(value)
            graph.erase_node(total)


def must_last(node: Node) -> bool:
    """Whether a graph node is an island that may not be recomputed, so that what it makes has to last."""
    return node.target is _FORWARD and not _known[node.args[1]].is_repeatable


def running(function: object, arguments: Sequence[Any], taken: frozenset[int]) -> Callable[..., Any] | None:
    """What runs an operator of a graph that is an island's; None for other operators.

    `taken`: of the gradients that it returns, those that parameters get as they are, and which may be none at all.
    """
    run: Callable[..., Any] | None = None
    if function is _FORWARD:
        run = _known[arguments[1]].forward
    elif function is _BACKWARD:
        run = replace(_known[arguments[4]], optional=taken).backward
    return run
