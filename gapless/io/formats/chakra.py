"""Chakra execution traces: a schedule of transfers as one file of sends and receives for each rank.

Schema: `et_def.proto` of mlcommons/chakra as of commit 6dc63e14, in the part that is used here; the frames are those of
its `protolib` (each message after its length as a varint, the global metadata first). Attribute types are those that
the feeders of Chakra and ASTRA-sim read: `comm_size` int64, `comm_src`, `comm_dst`, `comm_tag` int32, `is_cpu_op` bool.

Needs the extra `chakra` (protobuf), imported only when a trace is written or read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from gapless.errors import InputError
from gapless.installation.extras import missing_extra
from gapless.io.atomic import check_writable, write_bytes
from gapless.ir.schedule import Schedule
from gapless.ir.switch_ops import refuse_switch_ops

__all__ = ["TraceNode", "rank_traces", "read_traces", "trace_bytes", "trace_problem", "write_traces"]

VERSION = "0.0.4"
"""Of the global metadata, as Chakra's own generator writes it."""
COMPUTE, SEND, RECEIVE = 4, 5, 6
"""Numbers of COMP_NODE, COMM_SEND_NODE and COMM_RECV_NODE."""
MAX_VARINT_BYTES = 5
"""Of a length: the feeders read 32 bits."""
NUMBERS = {"comm_size": "int64_val", "comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val"}


@dataclass(frozen=True)
class TraceNode:
    """A send or receive of one rank, or, with no bytes and no peer, a step that takes no time.

    `source`, `target`: ranks. `tag`: the number of the message between the two, by which its receive finds it.
    `tensors`: what it carries. `data_deps`: receives that bring what is sent. `ctrl_deps`: the send before it on the
    same link.
    """

    id: int
    kind: int
    name: str
    source: int = -1
    target: int = -1
    size_bytes: int = 0
    tag: int = 0
    tensors: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()


def rank_traces(schedule: Schedule) -> list[list[TraceNode]]:
    """The nodes of each rank, in the order of the schedule's times; ids differ between ranks too.

    A rank that neither sends nor receives has one step that takes no time, because no feeder takes a trace without
    nodes. Raises `InputError` for a schedule that is not all transfers.
    """
    refuse_switch_ops(schedule.switch_ops, "chakra")
    if not schedule.is_transfer.all():
        raise InputError("chakra: a trace of sends and receives needs a schedule of transfers only, got other events")
    traces: list[list[TraceNode]] = [[] for _ in schedule.topology.node_of_device]
    sizes = schedule.graph.size_bytes
    brought: dict[tuple[int, int], tuple[int, ...]] = {}
    last_on_link: dict[int, int] = {}
    tags: dict[tuple[int, int], int] = {}
    order = np.lexsort((np.arange(len(schedule)), schedule.end_s, schedule.start_s))
    for turn, number in enumerate(order.tolist()):
        event = schedule.event(number)
        ends = int(schedule.topology.link_source[event.place]), int(schedule.topology.link_target[event.place])
        tag = tags[ends] = tags.get(ends, -1) + 1
        size_bytes = int(sizes[list(event.moves)].sum())
        sent, received = 2 * turn, 2 * turn + 1
        needs = sorted({node for tensor in event.moves for node in brought.get((tensor, ends[0]), ())})
        before = (last_on_link[event.place],) if event.place in last_on_link else ()
        last_on_link[event.place] = sent
        name = f"{ends[0]} to {ends[1]} number {tag}"
        receive = TraceNode(received, RECEIVE, f"receive {name}", *ends, size_bytes, tag, event.moves)
        send = replace(receive, id=sent, kind=SEND, name=f"send {name}", data_deps=tuple(needs), ctrl_deps=before)
        traces[ends[0]].append(send)
        traces[ends[1]].append(receive)
        for tensor in event.moves:
            kept = brought.get((tensor, ends[1]), ()) if event.reduces else ()
            brought[tensor, ends[1]] = (*kept, received)
    return [nodes or [TraceNode(0, COMPUTE, "idle")] for nodes in traces]


def trace_problem(traces: Sequence[Sequence[TraceNode]]) -> str:
    """What keeps a set of traces from running to its end, in one line; empty where nothing does.

    Every send has one receive of the same ends, tag, size and tensors at its target; dependencies name nodes of the
    same rank; and nothing waits for itself, through messages or otherwise.
    """
    graph: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
    messages: dict[tuple[int, int, int, int, tuple[int, ...]], dict[int, tuple[int, int]]] = {}
    for rank, nodes in enumerate(traces):
        known = {node.id for node in nodes}
        if len(known) < len(nodes) or not nodes:
            return f"rank {rank}: ids must differ, and there must be a node"
        for node in nodes:
            graph.add_node((rank, node.id))
            if not known.issuperset((*node.data_deps, *node.ctrl_deps)):
                return f"rank {rank} node {node.id}: depends on a node that the rank has not"
            graph.add_edges_from(((rank, other), (rank, node.id)) for other in (*node.data_deps, *node.ctrl_deps))
            if node.kind == COMPUTE:
                continue
            if rank != (node.source if node.kind == SEND else node.target):
                return f"rank {rank} node {node.id}: is another rank's"
            message = (node.source, node.target, node.tag, node.size_bytes, node.tensors)
            if messages.setdefault(message, {}).setdefault(node.kind, (rank, node.id)) != (rank, node.id):
                return f"rank {rank} node {node.id}: a message between two ranks has a tag of its own"
    for message, sides in messages.items():
        if len(sides) < 2:
            return f"{message[0]} to {message[1]} tag {message[2]}: a message needs a send and a receive that agree"
        graph.add_edge(sides[SEND], sides[RECEIVE])
    return "" if nx.is_directed_acyclic_graph(graph) else "some nodes wait for each other"


def write_traces(prefix: str | Path, schedule: Schedule) -> list[list[TraceNode]]:
    """Write `PREFIX.RANK.et` for each rank, as ASTRA-sim looks for them; returns the nodes.

    Nothing is written before all files were read back and found to run. Raises `InputError` as `rank_traces` does, for
    a path that can't be written to, or where protobuf is not installed.
    """
    traces = rank_traces(schedule)
    contents = [trace_bytes(nodes) for nodes in traces]
    read_back = [_nodes(content, f"{prefix}.{rank}.et") for rank, content in enumerate(contents)]
    problem = "" if read_back == traces else "what was written is read back otherwise"
    problem = problem or trace_problem(read_back)
    if problem:
        raise InputError(f"chakra: {problem}")
    paths = [Path(f"{prefix}.{rank}.et") for rank in range(len(traces))]
    for path in paths:
        check_writable(path)
    for path, content in zip(paths, contents, strict=True):
        write_bytes(path, content)
    return traces


def read_traces(prefix: str | Path) -> list[list[TraceNode]]:
    """The nodes of `PREFIX.0.et`, `PREFIX.1.et`, and so on.

    Raises `InputError` where there is none, or a broken one.
    """
    traces: list[list[TraceNode]] = []
    while os.path.exists(path := Path(f"{prefix}.{len(traces)}.et")):
        try:
            traces.append(_nodes(path.read_bytes(), str(path)))
        except OSError as error:
            raise InputError(f"{path}: can't be read: {error.strerror}") from error
    if not traces:
        raise InputError(f"{prefix}.0.et: there is no such file; the prefix is what stands before the rank")
    return traces


def trace_bytes(nodes: Sequence[TraceNode]) -> bytes:
    """The content of one rank's file; the same nodes give the same bytes."""
    message = _messages()
    parts = [message["GlobalMetadata"](version=VERSION)]
    for node in nodes:
        entry = message["Node"](id=node.id, name=node.name, type=node.kind)
        entry.data_deps.extend(node.data_deps)
        entry.ctrl_deps.extend(node.ctrl_deps)
        entry.attr.add(name="is_cpu_op", bool_val=False)
        if node.kind != COMPUTE:
            values = (node.size_bytes, node.source, node.target, node.tag)
            for (name, field), value in zip(NUMBERS.items(), values, strict=True):
                entry.attr.add(name=name, **{field: value})
            entry.attr.add(name="tensors").int64_list.values.extend(node.tensors)
        parts.append(entry)
    return b"".join(_framed(part.SerializeToString(deterministic=True)) for part in parts)


def _framed(content: bytes) -> bytes:
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*length, size]) + content


def _frames(content: bytes, where: str) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size = 0
        for shift in range(MAX_VARINT_BYTES):
            if at >= len(content):
                raise InputError(f"{where}: byte {at}: the file ends within a length")
            byte = content[at]
            at += 1
            size |= (byte & 0x7F) << 7 * shift
            if not byte & 0x80:
                break
        else:
            raise InputError(f"{where}: byte {at}: a length must fit {MAX_VARINT_BYTES} bytes")
        if at + size > len(content):
            raise InputError(f"{where}: byte {at}: a message of {size} bytes is cut off")
        yield content[at : at + size]
        at += size


def _nodes(content: bytes, where: str) -> list[TraceNode]:
    """The nodes of one file, of the kinds that are written here."""
    message = _messages()
    from google.protobuf.message import DecodeError

    frames = list(_frames(content, where))
    if not frames:
        raise InputError(f"{where}: must begin with the global metadata, got an empty file")
    nodes = []
    for number, frame in enumerate(frames):
        entry = message["Node" if number else "GlobalMetadata"]()
        try:
            entry.ParseFromString(frame)
        except DecodeError as error:
            raise InputError(f"{where}: message {number} is not of Chakra's schema: {error}") from None
        if number:
            nodes.append(_node(entry, f"{where}: node {entry.id}"))
    return nodes


def _node(entry: Any, where: str) -> TraceNode:
    if entry.type not in (COMPUTE, SEND, RECEIVE):
        raise InputError(f"{where}: type must be COMP, COMM_SEND or COMM_RECV, got number {entry.type}")
    attributes = {each.name: each for each in entry.attr}
    data_deps, ctrl_deps = tuple(entry.data_deps), tuple(entry.ctrl_deps)
    if entry.type == COMPUTE:
        return TraceNode(entry.id, entry.type, entry.name, data_deps=data_deps, ctrl_deps=ctrl_deps)
    for name in NUMBERS:
        if name not in attributes:
            raise InputError(f"{where}: attribute {name} is missing")
    size, source, target, tag = (getattr(attributes[name], field) for name, field in NUMBERS.items())
    tensors = tuple(attributes["tensors"].int64_list.values) if "tensors" in attributes else ()
    return TraceNode(entry.id, entry.type, entry.name, source, target, size, tag, tensors, data_deps, ctrl_deps)


@cache
def _messages() -> dict[str, Any]:
    """The classes of the schema's messages, in the fields that are used here."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise missing_extra("chakra", "protobuf", "chakra") from None
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="gapless_chakra.proto", package="ChakraProtoMsg", syntax="proto3")
    text, boolean, int32, int64, uint64, nested = (
        kinds.TYPE_STRING, kinds.TYPE_BOOL, kinds.TYPE_INT32, kinds.TYPE_INT64, kinds.TYPE_UINT64, kinds.TYPE_MESSAGE,
    )  # fmt: skip
    fields: dict[str, list[tuple[str, int, int, str]]] = {
        "Int64List": [("values", 1, int64, "*")],
        "AttributeProto": [
            ("name", 1, text, ""), ("int32_val", 7, int32, "|"), ("int64_val", 9, int64, "|"),
            ("int64_list", 10, nested, "|Int64List"), ("bool_val", 27, boolean, "|"),
        ],
        "GlobalMetadata": [("version", 1, text, ""), ("attr", 2, nested, "*AttributeProto")],
        "Node": [
            ("id", 1, uint64, ""), ("name", 2, text, ""), ("type", 3, int32, ""), ("ctrl_deps", 4, uint64, "*"),
            ("data_deps", 5, uint64, "*"), ("attr", 10, nested, "*AttributeProto"),
        ],
    }  # fmt: skip
    for name, rows in fields.items():
        entry = file.message_type.add(name=name)
        if name == "AttributeProto":
            entry.oneof_decl.add(name="value")
        for field, number, kind, how in rows:
            label = kinds.LABEL_REPEATED if how.startswith("*") else kinds.LABEL_OPTIONAL
            added = entry.field.add(name=field, number=number, type=kind, label=label)
            if how.startswith("|"):
                added.oneof_index = 0
            if how[1:]:
                added.type_name = f".ChakraProtoMsg.{how[1:]}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in fields
    }
