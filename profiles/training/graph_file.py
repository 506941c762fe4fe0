"""Training graph files: gapless's own format, and the published instances measured on a P100; plain or gzipped.

Our format, version 1; `//` comments are allowed::

    {"format": "gapless.training-graph", "version": 1, "name": "tiny", "batch": 32, "fixed_bytes": 4096,
     "source": "where the numbers are from",
     "forward": [
      {"name": "convolution.0", "op": "convolution", "output_bytes": 1024, "inputs": [],
       "ways": [{"duration_s": 0.001, "workspace_bytes": 64, "name": "gemm", "power_w": 200.0}]},
      {"name": "relu_.1", "op": "relu_", "output_bytes": 1024, "inputs": [0], "ways": [{"duration_s": 0.0002}],
       "again": [{"duration_s": 0.0001}], "overwrites": 0,
       "in_place": [{"duration_s": 0.0002, "workspace_bytes": -1024}]},
      {"name": "bits.2", "op": "bits", "output_bytes": 32, "inputs": [1], "ways": [{"duration_s": 0.0001}],
       "creator": 1, "overwrites": 0, "in_place": [{"duration_s": 0.0001, "workspace_bytes": -1024}]},
      {"name": "loss.3", "op": "loss", "output_bytes": 4, "inputs": [1], "ways": [{"duration_s": 0.0}]}],
     "backward": [
      {"name": "relu_grad.4", "op": "relu_grad", "forward": 1, "output_bytes": 1024, "gradients": [3],
       "variants": [{"name": "needs output", "needs": [1], "ways": [{"duration_s": 0.0002}]},
                    {"name": "needs bits", "needs": [2], "ways": [{"duration_s": 0.0003}]}], "fixed_bytes": 8192}]}

Nodes have no numbers in the file: forward node k is the k-th of its list, backward node k is the number of forward
nodes plus k. The last forward node is the loss. `inputs`, `creator` and `overwrites` name earlier forward nodes,
`needs` forward nodes before the loss, `gradients` the loss or earlier backward nodes. What each field means is in
`gapless.profiles.training.graph`. `ways` are
implementations. Optional are `source`, their `workspace_bytes` (0), `name` ("") and `power_w`,
a variant's `name`, and a forward node's `again`, `overwrites`, `in_place` and `creator`. Everything else must be
there, and nothing else may be.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.atomic import write_bytes
from gapless.io.record import Record, load_record
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant
from gapless.profiles.training.measured import instance_from, is_published_instance

__all__ = ["read_training_graph", "training_graph_text", "write_training_graph"]

_FORMAT = "gapless.training-graph"
_VERSION = 1
_LARGEST_BYTES = 2**62 - 1


def read_training_graph(path: str | Path) -> TrainingGraph:
    """The graph in a file of our format or of the published instances.

    Raises `InputError`, one line that names the file, the node, the field, the rule and the value.
    """
    record = load_record(path)
    if "format" in record:
        return _graph(record)
    if is_published_instance(record):
        return instance_from(record)
    raise InputError(
        f"{path}: must be a {_FORMAT} (field 'format') or a published instance "
        "(fields 'nodes' and 'num_fwd_with_intermediates')"
    )


def write_training_graph(path: str | Path, graph: TrainingGraph) -> None:
    """Write a graph in our format, gzipped where the path ends in `.gz`."""
    data = training_graph_text(graph).encode("utf-8")
    write_bytes(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def training_graph_text(graph: TrainingGraph) -> str:
    """A graph in our format, one node a line."""
    head = {
        "format": _FORMAT, "version": _VERSION, "name": graph.name, "batch": graph.batch,
        "fixed_bytes": graph.fixed_bytes, "source": graph.source,
    }  # fmt: skip
    forward = ",\n".join(json.dumps(_forward_data(node)) for node in graph.forward)
    backward = ",\n".join(json.dumps(_backward_data(node)) for node in graph.backward)
    return f'{json.dumps(head)[:-1]},\n"forward": [\n{forward}],\n"backward": [\n{backward}]}}\n'


# -- writing -----------------------------------------------------------------------------------------------------------


def _forward_data(node: ForwardNode) -> dict[str, Any]:
    data: dict[str, Any] = {"name": node.name, "op": node.op, "output_bytes": node.output_bytes}
    data |= {"inputs": list(node.inputs), "ways": _implementations_data(node.implementations)}
    if node.again:
        data["again"] = _implementations_data(node.again)
    if node.overwrites is not None:
        data |= {"overwrites": node.overwrites, "in_place": _implementations_data(node.in_place)}
    if node.creator is not None:
        data["creator"] = node.creator
    return data


def _backward_data(node: BackwardNode) -> dict[str, Any]:
    variants = [
        {"name": variant.name, "needs": list(variant.needs), "ways": _implementations_data(variant.implementations)}
        for variant in node.variants
    ]
    return {
        "name": node.name, "op": node.op, "forward": node.forward, "output_bytes": node.output_bytes,
        "gradients": list(node.gradients), "variants": variants, "fixed_bytes": node.fixed_bytes,
    }  # fmt: skip


def _implementations_data(impls: tuple[Implementation, ...]) -> list[dict[str, Any]]:
    found = []
    for impl in impls:
        data: dict[str, Any] = {"duration_s": float(impl.duration_s), "workspace_bytes": impl.workspace_bytes}
        if impl.name:
            data["name"] = impl.name
        if impl.power_w is not None:
            data["power_w"] = float(impl.power_w)
        found.append(data)
    return found


# -- reading -----------------------------------------------------------------------------------------------------------


def _graph(record: Record) -> TrainingGraph:
    record.of_format(_FORMAT)
    record.integer("version", _VERSION, _VERSION)
    name, batch = record.text("name"), record.integer("batch", 1)
    fixed_bytes = _size(record, "fixed_bytes")
    source = record.text("source", default="")
    forward = [_forward(node, number) for number, node in enumerate(_filled(record, "forward"))]
    backward = [_backward(node, number, len(forward) - 1) for number, node in enumerate(_filled(record, "backward"))]
    record.close()
    try:
        return TrainingGraph(name, batch, tuple(forward), tuple(backward), fixed_bytes, source)
    except InputError as error:
        raise InputError(f"{record.where}: {error}") from None


def _forward(node: Record, number: int) -> ForwardNode:
    found = ForwardNode(
        name=node.text("name"),
        op=node.text("op"),
        output_bytes=_size(node, "output_bytes"),
        inputs=_nodes(node, "inputs", 0, number - 1),
        implementations=_implementations(node, "ways"),
        again=_implementations(node, "again") if "again" in node else (),
        overwrites=_optional_node(node, "overwrites", number - 1),
        in_place=_implementations(node, "in_place") if "in_place" in node else (),
        creator=_optional_node(node, "creator", number - 1),
    )
    node.close()
    return found


def _backward(node: Record, number: int, loss: int) -> BackwardNode:
    found = BackwardNode(
        name=node.text("name"),
        op=node.text("op"),
        forward=node.integer("forward", 0, loss - 1),
        output_bytes=_size(node, "output_bytes"),
        gradients=_nodes(node, "gradients", loss, loss + number),
        variants=tuple(_variant(variant, loss) for variant in _filled(node, "variants")),
        fixed_bytes=_size(node, "fixed_bytes"),
    )
    node.close()
    return found


def _variant(variant: Record, loss: int) -> Variant:
    found = Variant(
        _nodes(variant, "needs", 0, loss - 1), _implementations(variant, "ways"), variant.text("name", default="")
    )
    variant.close()
    return found


def _implementations(node: Record, key: str) -> tuple[Implementation, ...]:
    return tuple(_implementation(impl) for impl in _filled(node, key))


def _implementation(impl: Record) -> Implementation:
    found = Implementation(
        duration_s=impl.number("duration_s", minimum=0),
        workspace_bytes=impl.integer("workspace_bytes", -_LARGEST_BYTES, _LARGEST_BYTES, default=0),
        name=impl.text("name", default=""),
        power_w=impl.number("power_w", minimum=0, default=None),
    )
    impl.close()
    return found


def _size(record: Record, key: str) -> int:
    return int(record.integer(key, 0, _LARGEST_BYTES))


def _filled(record: Record, key: str) -> list[Record]:
    found = record.records(key)
    if not found:
        raise record.fail(key, "a list of at least one", [])
    return found


def _nodes(record: Record, key: str, first: int, last: int) -> tuple[int, ...]:
    """Different node numbers in first..last; the first node of a graph can name none."""
    found: tuple[int, ...] = record.integers(key, 0)
    if last < first and found:
        raise record.fail(key, "an empty list, for no node comes before this one", list(found))
    for number in found:
        if not first <= number <= last:
            raise record.fail(key, f"node numbers in {first}..{last}", list(found))
    if len(set(found)) != len(found):
        raise record.fail(key, "different node numbers", list(found))
    return found


def _optional_node(record: Record, key: str, last: int) -> int | None:
    if key not in record:
        return None
    if last < 0:
        raise record.fail(key, "absent, for no node comes before this one", record.raw(key))
    return int(record.integer(key, 0, last))
