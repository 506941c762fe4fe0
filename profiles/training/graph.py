"""Training graphs: one step of training on one device, with a choice of implementations for each operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.typed import Stored
from gapless.report.short_repr import Brief

__all__ = ["BackwardNode", "ForwardNode", "Implementation", "TrainingGraph", "Variant"]

LARGEST_BYTES = 2**62 - 1
"""A size at most; sums of a few stay within 64 bits."""
_LASTING_NODES = 64
"""For how many nodes an output is alive that is said to last: residual connections are not among them."""


@dataclass(frozen=True)
class Implementation:
    """One way to run an operator: an algorithm with its time and its workspace.

    `workspace_bytes` is the memory that the run takes besides its output, measured as what it adds to the device: it is
    negative where the operator runs in place, by the bytes of the input that it takes over. `power_w`: mean power draw,
    for the energy objective; None if unknown.
    """

    duration_s: Annotated[float, Stored(0)]
    workspace_bytes: Annotated[int, Stored(-LARGEST_BYTES, LARGEST_BYTES)] = 0
    name: str = ""
    power_w: Annotated[float | None, Stored(0)] = None

    @property
    def energy_j(self) -> float | None:
        """What a run uses; None if its power is unknown. A run that takes no time uses nothing."""
        if not self.duration_s:
            return 0.0
        return None if self.power_w is None else self.duration_s * self.power_w


@dataclass(frozen=True)
class ForwardNode:
    """An operator of the forward pass, or an intermediate that one creates on the side, or the loss.

    `inputs`: forward nodes whose outputs it reads. `implementations`: at least one, the framework's default first.
    `again`: those of a recomputation, where they differ (statistics of a batch norm are reused); empty: the same.
    `overwrites`: the input that it may run in place over, with the implementations `in_place`. `creator`: for an
    intermediate, the node that makes it; it costs what making it adds, and is recomputed only with its creator.
    """

    name: str
    op: str
    output_bytes: Annotated[int, Stored(0, LARGEST_BYTES)]
    inputs: tuple[int, ...]
    implementations: Annotated[tuple[Implementation, ...], Stored(key="ways", is_filled=True)]
    again: Annotated[tuple[Implementation, ...], Stored(is_filled=True)] = ()
    overwrites: int | None = None
    in_place: Annotated[tuple[Implementation, ...], Stored(is_filled=True)] = ()
    creator: int | None = None

    @property
    def sources(self) -> tuple[int, ...]:
        """What a run reads: its inputs, or for an intermediate its creator's output."""
        return self.inputs if self.creator is None else (self.creator,)


@dataclass(frozen=True)
class Variant:
    """What a backward operator may be computed from: the forward tensors that it needs, and how it then runs."""

    needs: tuple[int, ...]
    implementations: Annotated[tuple[Implementation, ...], Stored(key="ways", is_filled=True)]
    name: str = ""


@dataclass(frozen=True)
class BackwardNode:
    """An operator of the backward pass.

    `forward`: the node whose gradient it is part of. `output_bytes`: all input gradients that it creates. `gradients`:
    what it reads of earlier gradients, as node numbers: the loss, or a backward node (forward nodes count first).
    `fixed_bytes`: input, parameters and the parameter gradients made up to and with this node.
    """

    name: str
    op: str
    forward: int
    output_bytes: Annotated[int, Stored(0, LARGEST_BYTES)]
    gradients: tuple[int, ...]
    variants: Annotated[tuple[Variant, ...], Stored(is_filled=True)]
    fixed_bytes: Annotated[int, Stored(0, LARGEST_BYTES)]


@dataclass(frozen=True, repr=False)
class TrainingGraph(Brief):
    """Forward nodes in the order in which they run, the loss last; backward nodes in the order in which they run.

    Node numbers: forward nodes are 0 .. V - 1, backward node b is V + b. Raises `InputError` where a number is out of
    range, an order is broken, or a size or time makes no sense.
    """

    name: str
    batch: Annotated[int, Stored(1)]
    forward: Annotated[tuple[ForwardNode, ...], Stored(is_filled=True)]
    backward: Annotated[tuple[BackwardNode, ...], Stored(is_filled=True)]
    fixed_bytes: Annotated[int, Stored(0, LARGEST_BYTES)]
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.forward or not self.backward:
            raise InputError(f"training graph {self.name!r}: must have forward and backward nodes, got none")
        if self.fixed_bytes < 0:
            raise InputError(f"training graph {self.name!r}: fixed_bytes must be >= 0, got {self.fixed_bytes}")
        for number, node in enumerate(self.forward):
            _check_forward(self, number, node)
        for number, backward in enumerate(self.backward):
            _check_backward(self, len(self.forward) + number, backward)

    def with_implementations(self, changed: Callable[[str, Implementation], Implementation]) -> TrainingGraph:
        """The graph with every implementation changed; `changed` gets the name of its node and itself."""

        def all_of(name: str, impls: tuple[Implementation, ...]) -> tuple[Implementation, ...]:
            return tuple(changed(name, impl) for impl in impls)

        forward = tuple(
            replace(
                node,
                implementations=all_of(node.name, node.implementations),
                again=all_of(node.name, node.again),
                in_place=all_of(node.name, node.in_place),
            )
            for node in self.forward
        )
        backward = tuple(
            replace(
                node,
                variants=tuple(
                    replace(variant, implementations=all_of(node.name, variant.implementations))
                    for variant in node.variants
                ),
            )
            for node in self.backward
        )
        return replace(self, forward=forward, backward=backward)

    @property
    def loss(self) -> int:
        """The number of the loss, the last forward node."""
        return len(self.forward) - 1

    @cached_property
    def output_bytes(self) -> NDArray[np.int64]:
        """Size of each forward node's output, int64, shape (V,)."""
        return np.array([node.output_bytes for node in self.forward], dtype=np.int64)

    @cached_property
    def local(self) -> NDArray[np.bool_]:
        """`local[i, j]`: whether x_j is among L_i, made before node i and read by it or a later one; (V, V)."""
        local = np.zeros((len(self.forward),) * 2, dtype=np.bool_)
        for user, node in enumerate(self.forward):
            for source in node.inputs:
                local[source + 1 : user + 1, source] = True
        return local

    @cached_property
    def last_reader(self) -> NDArray[np.int64]:
        """The last forward node that reads each output, the node itself if none does; int64, shape (V,)."""
        last = np.arange(len(self.forward))
        for user, node in enumerate(self.forward):
            last[list(node.inputs)] = user
        return last

    @cached_property
    def alive(self) -> list[NDArray[np.int64]]:
        """L_i of each forward node i, ascending: what is made before it and read by it or a later one."""
        found, now = [], list[int]()
        for number, last in enumerate(self.last_reader.tolist()):
            now = [k for k in now if self.last_reader[k] >= number]
            found.append(np.array(now, dtype=np.int64))
            if last > number:
                now.append(number)
        return found

    @cached_property
    def lasting(self) -> NDArray[np.bool_]:
        """Which outputs are in L_i of very many nodes, so that nobody should look at all pairs; bool, shape (V,)."""
        return self.last_reader - np.arange(len(self.forward)) > _LASTING_NODES

    @cached_property
    def gradient_bytes(self) -> NDArray[np.int64]:
        """|L^_k|: bytes of the gradients made before backward node k and read by it or a later one; (backward,)."""
        count, first = len(self.backward), self.loss
        size = [self.forward[first].output_bytes, *(node.output_bytes for node in self.backward)]
        last_user = [-1] * (count + 1)
        for number, node in enumerate(self.backward):
            for gradient in node.gradients:
                last_user[gradient - first] = number
        live = np.zeros(count, dtype=np.int64)
        for made, last in enumerate(last_user):
            live[made : last + 1] += size[made]
        return live


def _check_forward(graph: TrainingGraph, number: int, node: ForwardNode) -> None:
    where = f"forward node {number} {node.name!r}"
    _check_size(where, "output_bytes", node.output_bytes)
    for source in (*node.inputs, *([] if node.creator is None else [node.creator])):
        if not 0 <= source < number:
            raise InputError(f"{where}: inputs and creator must be earlier nodes, got {source}")
    if node.overwrites is not None and node.overwrites not in node.inputs and node.creator is None:
        raise InputError(f"{where}: overwrites must be one of its inputs, got {node.overwrites}")
    if (node.overwrites is None) != (not node.in_place):
        raise InputError(f"{where}: overwrites and in_place must be given together")
    _check_implementations(where, node.implementations)
    for impls in (node.again, node.in_place):
        if impls:
            _check_implementations(where, impls)
            if len(impls) != len(node.implementations):
                raise InputError(
                    f"{where}: again and in_place must be as many as implementations, {len(node.implementations)}"
                )


def _check_backward(graph: TrainingGraph, number: int, node: BackwardNode) -> None:
    where = f"backward node {number} {node.name!r}"
    _check_size(where, "output_bytes", node.output_bytes)
    _check_size(where, "fixed_bytes", node.fixed_bytes)
    if not 0 <= node.forward < graph.loss:
        raise InputError(f"{where}: forward must be in 0..{graph.loss - 1}, got {node.forward}")
    for gradient in node.gradients:
        if not graph.loss <= gradient < number:
            raise InputError(f"{where}: gradients must be the loss or earlier backward nodes, got {gradient}")
    if not node.variants:
        raise InputError(f"{where}: variants must hold at least one, got none")
    for variant in node.variants:
        _check_implementations(where, variant.implementations)
        for need in variant.needs:
            if not 0 <= need < graph.loss:
                raise InputError(f"{where}: needs must be in 0..{graph.loss - 1}, got {need}")


def _check_size(where: str, field_name: str, size_bytes: int) -> None:
    if not 0 <= size_bytes <= LARGEST_BYTES:
        raise InputError(f"{where}: {field_name} must be in 0..2^62 - 1, got {size_bytes}")


def _check_implementations(where: str, impls: Iterable[Implementation]) -> None:
    impls = tuple(impls)
    if not impls:
        raise InputError(f"{where}: implementations must hold at least one, got none")
    for impl in impls:
        if not (impl.duration_s >= 0 and math.isfinite(impl.duration_s)):
            raise InputError(f"{where}: duration_s must be finite and >= 0, got {impl.duration_s}")
        if abs(impl.workspace_bytes) > LARGEST_BYTES:
            raise InputError(f"{where}: workspace_bytes must be below 2^62 in size, got {impl.workspace_bytes}")
        if impl.power_w is not None and not (impl.power_w >= 0 and math.isfinite(impl.power_w)):
            raise InputError(f"{where}: power_w must be finite and >= 0, got {impl.power_w}")
