"""Chakra traces: what is written is read back alike, runs to its end, and carries the collective out."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys

import numpy as np
import pytest
from examples import examples
from hand_made_collectives import (
    Case,
    pairs_alltoall,
    relayed_alltoall,
    ring_allgather,
    ring_allreduce,
    tree_allreduce,
)
from hypothesis import given
from random_allgathers import allgathers

from gapless.errors import InputError
from gapless.io.formats.chakra import (
    COMPUTE,
    RECEIVE,
    SEND,
    TraceNode,
    rank_traces,
    read_traces,
    trace_bytes,
    trace_problem,
    write_traces,
)
from gapless.ir.schedule import EventKind, schedule_from_events

CASES = {
    "allgather": lambda: ring_allgather(4, 2),
    "alltoall": lambda: pairs_alltoall(3),
    "alltoall-relayed": lambda: relayed_alltoall(6),
    "allreduce-ring": lambda: ring_allreduce(4, 2),
    "allreduce-tree": lambda: tree_allreduce(6, 1, root=2),
}


def lost(case: Case, traces: list[list[TraceNode]]) -> list[str]:
    """Sends of what a rank has not by then, by its input and its data dependencies alone; outputs that never come."""
    collective, _ = case
    found = []
    for rank, nodes in enumerate(traces):
        by_id = {node.id: node for node in nodes}
        inputs, received = set(collective.inputs[rank]), set()
        for node in nodes:
            if node.kind == RECEIVE:
                received.update(node.tensors)
                continue
            brought = {tensor for number in node.data_deps for tensor in by_id[number].tensors}
            if not inputs.union(brought).issuperset(node.tensors):
                found.append(f"rank {rank} sends {node.tensors} too soon")
        if not inputs.union(received).issuperset(collective.outputs[rank]):
            found.append(f"rank {rank} lacks a part of its output")
    return found


@pytest.mark.parametrize("name", CASES)
def test_traces_are_read_back_alike_and_carry_the_collective_out(tmp_path, name):
    case = CASES[name]()
    traces = write_traces(tmp_path / "t", case[1])
    assert read_traces(tmp_path / "t") == traces
    assert len(list(tmp_path.iterdir())) == case[0].rank_count
    assert trace_problem(traces) == ""
    assert lost(case, traces) == []
    sent = sum(node.size_bytes for nodes in traces for node in nodes if node.kind == SEND)
    assert sent == sum(int(case[1].graph.size_bytes[list(event.moves)].sum()) for event in case[1].events())


@examples(40)
@given(case=allgathers())
def test_random_schedules_become_traces_that_carry_them_out(case):
    traces = rank_traces(case[1])
    assert trace_problem(traces) == ""
    assert lost(case, traces) == []


def test_a_sum_waits_for_all_that_is_added():
    traces = rank_traces(tree_allreduce(6, 1, root=0)[1])
    assert max(len(node.data_deps) for node in traces[0] if node.kind == SEND) == 2


def test_sends_on_a_link_keep_their_order():
    traces = rank_traces(ring_allgather(3, 1)[1])
    for nodes in traces:
        first, second = (node for node in nodes if node.kind == SEND)
        assert (first.ctrl_deps, second.ctrl_deps) == ((), (first.id,))
        assert (first.tag, second.tag) == (0, 1)


def test_a_rank_without_traffic_has_a_step_that_takes_no_time(tmp_path):
    _, schedule = ring_allgather(4)
    one = schedule_from_events(schedule.graph, schedule.topology, [schedule.event(0)])
    traces = write_traces(tmp_path / "t", one)
    assert traces.count([TraceNode(0, COMPUTE, "idle")]) == 2
    assert read_traces(tmp_path / "t") == traces


def test_the_files_have_the_frames_and_fields_of_the_schema():
    """The bytes of a send, field by field, as a protobuf compiler's reader of the public schema takes them."""
    node = TraceNode(
        3, SEND, "n", source=1, target=2, size_bytes=300, tag=0, tensors=(7,), data_deps=(1,), ctrl_deps=(2,)
    )
    attributes = [
        b"\x0a\x09is_cpu_op\xd8\x01\x00",
        b"\x0a\x09comm_size\x48\xac\x02",
        b"\x0a\x08comm_src\x38\x01",
        b"\x0a\x08comm_dst\x38\x02",
        b"\x0a\x08comm_tag\x38\x00",
        b"\x0a\x07tensors\x52\x03\x0a\x01\x07",
    ]
    message = b"\x08\x03\x12\x01n\x18\x05\x22\x01\x02\x2a\x01\x01"
    message += b"".join(b"\x52" + bytes([len(each)]) + each for each in attributes)
    assert trace_bytes([node]) == b"\x07\x0a\x050.0.4" + bytes([len(message)]) + message


def test_a_schedule_with_other_events_is_refused():
    _, schedule = ring_allgather(2)
    kinds = np.full(len(schedule), int(EventKind.COMPUTE), dtype=schedule.kind.dtype)
    with pytest.raises(InputError, match="needs a schedule of transfers only"):
        rank_traces(dataclasses.replace(schedule, kind=kinds))


def test_without_protobuf_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    monkeypatch.delitem(sys.modules, "gapless.io.formats.chakra")
    fresh = importlib.import_module("gapless.io.formats.chakra")
    with pytest.raises(InputError, match=re.escape("pip install '.[chakra]' in a checkout")):
        fresh.trace_bytes([])


def good() -> list[list[TraceNode]]:
    return rank_traces(ring_allgather(3, 1)[1])


def changed(rank: int, number: int, **fields: object) -> list[list[TraceNode]]:
    traces = good()
    traces[rank][number] = dataclasses.replace(traces[rank][number], **fields)
    return traces


MISTAKES = {
    "id twice": (lambda: changed(0, 1, id=good()[0][0].id), "rank 0: ids must differ"),
    "no nodes": (lambda: [*good(), []], "rank 3: ids must differ, and there must be a node"),
    "unknown dependency": (lambda: changed(1, 0, data_deps=(99,)), "depends on a node that the rank has not"),
    "another rank's": (lambda: changed(0, 0, source=1), "rank 0 node 0: is another rank's"),
    "tag twice": (lambda: changed(0, 2, tag=0, tensors=good()[0][0].tensors), "a message between two ranks has a tag"),
    "no receive": (lambda: changed(0, 0, tag=7), "0 to 1 tag .*: a message needs a send and a receive that agree"),
    "sizes that differ": (lambda: changed(0, 0, size_bytes=9), "a message needs a send and a receive that agree"),
    "waiting for itself": (lambda: changed(0, 0, data_deps=(good()[0][0].id,)), "some nodes wait for each other"),
}  # fmt: skip


@pytest.mark.parametrize("title", MISTAKES)
def test_traces_that_do_not_run_are_told_in_one_line(title):
    make, message = MISTAKES[title]
    assert re.search(message, trace_problem(make()))


def test_a_cycle_through_messages_is_found():
    def node(number: int, kind: int, source: int, target: int, deps: tuple[int, ...]) -> TraceNode:
        return TraceNode(number, kind, "n", source, target, 1, 0, (0,), deps)

    one = [node(0, SEND, 0, 1, (1,)), node(1, RECEIVE, 1, 0, ())]
    traces = [one, [node(2, SEND, 1, 0, (3,)), node(3, RECEIVE, 0, 1, ())]]
    assert trace_problem(traces) == "some nodes wait for each other"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must begin with the global metadata, got an empty file"),
        (b"\x05abc", "byte 1: a message of 5 bytes is cut off"),
        (b"\xff", "byte 1: the file ends within a length"),
        (b"\xff" * 9, "byte 5: a length must fit 5 bytes"),
        (b"\x00\x02\x0a\x09", "message 1 is not of Chakra's schema"),
        (b"\x00\x02\x18\x07", "type must be COMP, COMM_SEND or COMM_RECV, got number 7"),
        (b"\x00\x02\x18\x05", "attribute comm_size is missing"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path, content, message):
    (tmp_path / "t.0.et").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_traces(tmp_path / "t")
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "t.0.et"))
    assert "\n" not in str(caught.value)


def test_nothing_is_written_where_one_file_can_not_be(tmp_path):
    (tmp_path / "t.2.et").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        write_traces(tmp_path / "t", ring_allgather(4)[1])
    assert [path.name for path in tmp_path.iterdir()] == ["t.2.et"]
    with pytest.raises(InputError, match="there is no such file"):
        read_traces(tmp_path / "t")
