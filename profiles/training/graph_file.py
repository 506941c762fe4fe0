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
from pathlib import Path

from gapless.errors import InputError
from gapless.io.atomic import write_bytes
from gapless.io.record import Record, load_record
from gapless.io.typed import read_record, text_of
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.measured import instance_from, is_published_instance

__all__ = ["read_training_graph", "training_graph_text", "write_training_graph"]

_FORMAT = "gapless.training-graph"
_VERSION = 1


def read_training_graph(path: str | Path) -> TrainingGraph:
    """The graph in a file of our format or of the published instances.

    Raises `InputError`, one line that names the file, the node, the field, the rule and the value.
    """
    record = load_record(path)
    if "format" in record:
        record.of_format(_FORMAT, _VERSION)
        _check_numbers(record)
        return read_record(TrainingGraph, record)
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
    return text_of(graph, _FORMAT, _VERSION, ["forward", "backward"])


# -- node numbers, whose limits depend on where they stand -------------------------------------------------------------


def _check_numbers(record: Record) -> None:
    """Raise `InputError` for nodes that name others which don't come before them."""
    forward, backward = record.records("forward"), record.records("backward")
    loss = len(forward) - 1
    for number, node in enumerate(forward):
        _check_nodes(node, "inputs", 0, number - 1)
        for key in ("overwrites", "creator"):
            if key in node and number == 0:
                raise node.fail(key, "absent, for no node comes before this one", node.raw(key))
            if key in node:
                node.integer(key, 0, number - 1)
    for number, node in enumerate(backward if forward else []):
        node.integer("forward", 0, loss - 1)
        _check_nodes(node, "gradients", loss, loss + number)
        for variant in node.records("variants"):
            _check_nodes(variant, "needs", 0, loss - 1)


def _check_nodes(record: Record, key: str, first: int, last: int) -> None:
    """Different node numbers in first..last; the first node of a graph can name none."""
    found: tuple[int, ...] = record.integers(key, 0)
    if last < first and found:
        raise record.fail(key, "an empty list, for no node comes before this one", list(found))
    for number in found:
        if not first <= number <= last:
            raise record.fail(key, f"node numbers in {first}..{last}", list(found))
    if len(set(found)) != len(found):
        raise record.fail(key, "different node numbers", list(found))
