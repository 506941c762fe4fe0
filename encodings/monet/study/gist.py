"""Gist (Jain et al., ISCA 2018) as section 4.6.2 of the thesis has it: what the backward pass needs is kept encoded.

- A ReLU whose output only max-poolings read keeps one bit an element, a max-pooling the places of its maxima.
- A ReLU whose output a convolution reads keeps it as CSR: rows of 256 elements, four bytes a value, one byte a column.
- All else is kept in half precision, which is not exact. Nothing is recomputed, and a ReLU runs in place where it may.

Encoding and decoding take the time in which their bytes pass the device's memory, at the rate of its ReLUs. A decoded
tensor is there while the operator that reads it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gapless.encodings.monet.parameters import Encoding
from gapless.errors import InputError
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant

__all__ = ["Encoded", "encode", "encoded_graph"]

_ROW = 256
"""Elements of a row of CSR: a column then fits in a byte."""
_VALUE_BYTES, _COLUMN_BYTES, _POINTER_BYTES = 4, 1, 4
_CLIPPED = frozenset({"relu", "relu6", "hardtanh"})
"""Operators whose output has zeros."""
_CONVOLUTIONS = frozenset({"convolution", "_convolution"})


@dataclass(frozen=True)
class Encoded:
    """A kept tensor: its bytes, and what it takes to make it and to have it back. `dense_bytes`: as it was."""

    op: str
    dense_bytes: int
    size_bytes: int
    workspace_bytes: int
    encode_s: float
    decode_s: float


def encode(dense_bytes: int, zeros: float | None, bytes_per_s: float, csr_bytes_per_s: float = 0.0) -> Encoded:
    """A tensor of single precision as CSR with that share of zeros, or in half precision for None.

    CSR is made in two passes, since the values of each row are counted first; `csr_bytes_per_s`: of the dense tensor,
    0 for what `bytes_per_s` of the memory allows.
    """
    if zeros is None:
        half_bytes = -(-dense_bytes // 2)
        seconds = (dense_bytes + half_bytes) / bytes_per_s
        return Encoded("half_precision", dense_bytes, half_bytes, 0, seconds, seconds)
    elements = dense_bytes // _VALUE_BYTES
    rows, values = -(-elements // _ROW), round((1 - zeros) * elements)
    size_bytes = values * (_VALUE_BYTES + _COLUMN_BYTES) + (rows + 1) * _POINTER_BYTES
    encode_s = dense_bytes / csr_bytes_per_s if csr_bytes_per_s else (2 * dense_bytes + size_bytes) / bytes_per_s
    decode_s = (size_bytes + dense_bytes + values * _VALUE_BYTES) / bytes_per_s  # zeros first, then the values
    return Encoded("compressed_rows", dense_bytes, size_bytes, rows * _POINTER_BYTES, encode_s, decode_s)


def encoded_graph(graph: TrainingGraph, encoding: Encoding) -> TrainingGraph:
    """The graph with an encoded tensor behind each one that a backward node needs, which needs that in its place.

    Each backward node has one variant. Raises `InputError` where the shares of zeros are not one for each ReLU.
    """
    readers = _readers(graph)
    chosen = [_chosen(graph, node, readers[node.forward]) for node in graph.backward]
    wanted = {need for variant in chosen for need in variant.needs if graph.forward[need].creator is None}
    zeros, rate = _zeros(graph, encoding), _bytes_per_s(graph)
    kept = {
        need: encode(
            graph.forward[need].output_bytes,
            zeros.get(need) if _CONVOLUTIONS.intersection(readers[need]) else None, rate, encoding.csr_bytes_per_s,
        )
        for need in sorted(wanted)
    }  # fmt: skip
    number, encoded = _numbers(graph, kept)
    backward = [
        replace(
            node,
            forward=number[node.forward],
            gradients=tuple(number[gradient] for gradient in node.gradients),
            variants=(_decoding(variant, kept, number, encoded),),
        )
        for node, variant in zip(graph.backward, chosen, strict=True)
    ]
    return replace(graph, forward=tuple(_forward(graph, kept, number)), backward=tuple(backward))


def plain_op(op: str) -> str:
    """An operator's name without what PyTorch puts around it: `relu` of `aten::relu_` and `aten.relu.default`."""
    return op.removeprefix("aten::").removeprefix("aten.").partition(".")[0].removesuffix("_")


def _readers(graph: TrainingGraph) -> list[list[str]]:
    """The operators of the forward pass that read each tensor, by name."""
    readers: list[list[str]] = [[] for _ in graph.forward]
    for node in graph.forward:
        for source in node.inputs if node.creator is None else ():
            readers[source].append(plain_op(node.op))
    return readers


def _chosen(graph: TrainingGraph, node: BackwardNode, readers: Sequence[str]) -> Variant:
    """What a backward node is computed from."""
    op = plain_op(graph.forward[node.forward].op)
    beside = [
        variant for variant in node.variants if any(graph.forward[need].creator is not None for need in variant.needs)
    ]
    if op in _CLIPPED and not (beside and readers and all(reader.startswith("max_pool") for reader in readers)):
        return next((variant for variant in node.variants if variant.needs == (node.forward,)), node.variants[0])
    return beside[0] if beside and (op in _CLIPPED or op.startswith("max_pool")) else node.variants[0]


def _zeros(graph: TrainingGraph, encoding: Encoding) -> dict[int, float]:
    """The share of zeros in the output of each operator that clips."""
    clipped = [number for number, node in enumerate(graph.forward) if node.creator is None and _is_clipped(node)]
    shares = encoding.zeros * len(clipped) if len(encoding.zeros) == 1 else encoding.zeros
    if len(shares) != len(clipped):
        rule = f"one share, or one for each of the {len(clipped)} ReLUs of {graph.name!r}"
        raise InputError(f"encoding.zeros: must be {rule}, got {len(shares)}")
    return dict(zip(clipped, shares, strict=True))


def _is_clipped(node: ForwardNode) -> bool:
    return plain_op(node.op) in _CLIPPED


def _bytes_per_s(graph: TrainingGraph) -> float:
    """The rate of the device's memory: the best that a ReLU reaches, which reads and writes its output's bytes.

    Without ReLUs, the best of all operators; without times, encoding takes none.
    """
    nodes = [node for node in graph.forward if node.creator is None]
    rates = [
        2 * node.output_bytes / impl.duration_s
        for node in [node for node in nodes if _is_clipped(node)] or nodes
        for impl in node.implementations[:1]
        if impl.duration_s and node.output_bytes
    ]
    return max(rates, default=float("inf"))


def _numbers(graph: TrainingGraph, kept: Mapping[int, Encoded]) -> tuple[dict[int, int], dict[int, int]]:
    """The new number of each node, backward ones too, and of what each kept tensor is encoded in, just behind it."""
    number: dict[int, int] = {}
    for old in range(len(graph.forward) + len(graph.backward)):
        number[old] = old + sum(need < old for need in kept)
    return number, {need: number[need] + 1 for need in kept}


def _forward(graph: TrainingGraph, kept: Mapping[int, Encoded], number: Mapping[int, int]) -> Iterator[ForwardNode]:
    for old, node in enumerate(graph.forward):
        yield replace(
            node,
            inputs=tuple(number[source] for source in node.inputs),
            overwrites=None if node.overwrites is None else number[node.overwrites],
            creator=None if node.creator is None else number[node.creator],
        )
        if old in kept:
            made = kept[old]
            impl = replace(
                node.implementations[0], duration_s=made.encode_s, workspace_bytes=made.workspace_bytes, name=made.op
            )
            name, here = f"{made.op} of {node.name}", number[old]
            yield ForwardNode(name, made.op, made.size_bytes, (here,), (impl,), creator=here)


def _decoding(
    variant: Variant, kept: Mapping[int, Encoded], number: Mapping[int, int], encoded: Mapping[int, int]
) -> Variant:
    """The variant as it runs on what is kept encoded: the decoded tensors are its workspace."""
    read = [kept[need] for need in variant.needs if need in kept]
    decode_s, dense_bytes = sum(one.decode_s for one in read), sum(one.dense_bytes for one in read)

    def after(impl: Implementation) -> Implementation:
        return replace(impl, duration_s=impl.duration_s + decode_s, workspace_bytes=impl.workspace_bytes + dense_bytes)

    needs = tuple(encoded.get(need, number[need]) for need in variant.needs)
    return replace(variant, needs=needs, implementations=tuple(map(after, variant.implementations)))
