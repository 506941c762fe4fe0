"""The reader of the published training graphs (JSON, plain or gzipped), measured on a P100 by their authors.

Times and sizes are rounded up as the reference solver did: 0.01 ms and 1 KiB. Sums of them are then exact.
"""

from __future__ import annotations

import math

from gapless.io.record import Record, is_number
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant

__all__ = ["TIME_UNIT_S", "instance_from", "is_published_instance"]

TIME_UNIT_S = 1e-5
_KIB = 1024
_FAILED_MS = -1000
_LARGEST = 1e15
"""Milliseconds and MiB beyond this are no measurements."""


def is_published_instance(record: Record) -> bool:
    """Whether a JSON object looks like one of these files."""
    return "num_fwd_with_intermediates" in record and "nodes" in record


def instance_from(record: Record) -> TrainingGraph:
    """A measured graph from its JSON object, without its choices where the file says that they were not selectable.

    Raises `InputError` naming the node and field.
    """
    loss = record.integer("loss", 1)
    nodes = record.records("nodes")
    if len(nodes) <= loss + 1:
        raise record.fail("nodes", f"more than the {loss + 1} up to the loss", len(nodes))
    algorithms = set(record.integers("conv_list", 0)) if record.boolean("select_conv_algo") else set()
    overwritten = record.record("inplace_of") if record.boolean("do_inplace") else Record({}, record.where)
    for node in overwritten.names():
        if not is_number(node):
            raise overwritten.fail(node, "the number of a node", node)
    over = {int(node): overwritten.integer(node, 0, loss) for node in overwritten.names()}
    forward = [_forward(node, over.get(number), number in algorithms) for number, node in enumerate(nodes[: loss + 1])]
    first = nodes[0]
    return TrainingGraph(
        name=record.text("model"),
        batch=record.integer("batch", 1),
        forward=tuple(forward),
        backward=tuple(_backward(node, loss, loss + 1 + k in algorithms) for k, node in enumerate(nodes[loss + 1 :])),
        fixed_bytes=_rounded(first.integer("fixed_mem_bytes", 0)),
        source="measured on a P100 by the authors of the published instances",
    )


def _forward(node: Record, over: int | None, chooses: bool) -> ForwardNode:
    creator = node.integer("parent", 0) if node.text("kind") == "int" else None
    return ForwardNode(
        name=f"{node.text('op')}.{node.integer('id', 0)}",
        op=node.text("op"),
        output_bytes=_rounded(node.integer("mem_bytes", 0)),
        inputs=_needed(node)[0],
        implementations=_implementations(node, "", chooses),
        again=_implementations(node, "recompute_", chooses),
        overwrites=over,
        in_place=_implementations(node, "inplace_", chooses) if over is not None else (),
        creator=creator,
    )


def _backward(node: Record, loss: int, chooses: bool) -> BackwardNode:
    args = _needed(node)
    variants = []
    for number, needed in enumerate(args):
        impls = _implementations(node, "", True) if chooses else _implementations(node, "", False, number)
        variants.append(Variant(tuple(k for k in needed if k < loss), impls))
    gradients = {tuple(k for k in needed if k >= loss) for needed in args}
    if len(gradients) != 1:
        raise node.fail(
            "args", "lists that read the same gradients in every implementation", [list(numbers) for numbers in args]
        )
    return BackwardNode(
        name=f"{node.text('op')}.{node.integer('id', 0)}",
        op=node.text("op"),
        forward=node.integer("fwd_id", 0),
        output_bytes=_rounded(node.integer("mem_bytes", 0)),
        gradients=gradients.pop(),
        variants=tuple(variants),
        fixed_bytes=_rounded(node.integer("fixed_mem_bytes", 0)),
    )


def _needed(node: Record) -> list[tuple[int, ...]]:
    """For each implementation, the nodes that it reads."""
    rule = "a list of lists of node numbers, one per implementation"
    args = node.lists("args", rule)
    if not args:
        raise node.fail("args", rule, args)
    return [tuple(node.whole(f"args[{k}]", item, 0) for item in numbers) for k, numbers in enumerate(args)]


def _implementations(node: Record, prefix: str, chooses: bool, only: int = 0) -> tuple[Implementation, ...]:
    """All algorithms that did not fail, the default first; without a choice, implementation `only`."""
    times_ms, workspaces_mib = _numbers(node, f"{prefix}compute_ms"), _numbers(node, f"{prefix}workspace_mib")
    if len(times_ms) != len(workspaces_mib) or len(times_ms) <= only:
        raise node.fail(f"{prefix}compute_ms", "as long as the workspaces, an entry per implementation", times_ms)
    chosen = range(len(times_ms)) if chooses else [only]
    return tuple(
        Implementation(
            math.ceil(times_ms[k] * 100) * TIME_UNIT_S, math.ceil(workspaces_mib[k] * _KIB) * _KIB, f"algorithm {k}"
        )
        for k in chosen
        if times_ms[k] != _FAILED_MS
    )


def _numbers(node: Record, key: str) -> list[float]:
    values = [node.real(f"{key}[{k}]", value, -_LARGEST) for k, value in enumerate(node.array(key))]
    for k, value in enumerate(values):
        if value > _LARGEST:
            raise node.fail(f"{key}[{k}]", f"a number <= {_LARGEST:g}", value)
    return values


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // _KIB) * _KIB
