"""Hand-written plans: what each operation does, and that every kind of single mistake is refused for its reason."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hand_made_collectives import pairs_reducescatter, relayed_alltoall, ring_allgather, ring_allreduce

from gapless.errors import InputError
from gapless.io.mscclpp import Plan, judge, lower, parse_plan, plan_text
from gapless.io.mscclpp.program import Block, Operation
from gapless.ir.schedule import Schedule

Json = dict[str, Any]
NOP: Json = {"name": "nop"}


def sync(name: str, kind: str = "memory") -> Json:
    return {"name": name, "channel_ids": [0], "channel_type": kind}


def own(buffer: str, index: int, size: int = 1) -> Json:
    return {"type": buffer, "index": index, "size": size}


def theirs(buffer_id: int, index: int, size: int = 1) -> Json:
    return {"buffer_id": buffer_id, "index": index, "size": size}


def moved(name: str, source: Json, target: Json, kind: str = "memory") -> Json:
    return {"name": name, "src_buff": [source], "dst_buff": [target], "channel_ids": [0], "channel_type": kind}


def summed(name: str, sources: list[Json], targets: list[Json]) -> Json:
    reach = {} if name == "re" else {"channel_type": "memory"}
    return {"name": name, "src_buff": sources, "dst_buff": targets, "reduce_op": "sum", **reach}


def copied(source: Json, target: Json) -> Json:
    return {"name": "copy", "src_buff": [source], "dst_buff": [target]}


def meeting(kind: str = "memory") -> list[Json]:
    """Both sides say that they have started, and wait for the other."""
    return [sync("signal", kind), sync("wait", kind), NOP]


def pair(
    collective: str, chunks: tuple[int, int, int], ops: list[list[Json]], kind: str = "memory", reach: str = "o"
) -> Json:
    """Two GPUs with a block each, one channel, and the peer's buffers `reach`."""
    gpus = []
    for rank in range(2):
        links = {"channel_type": kind, "channel_ids": [0]}
        refs = {"access_channel_type": kind, "remote_buffer_ids": list(range(len(reach)))}
        block = {"id": 0, "ops": ops[rank], "channels": [links], "remote_buffer_refs": [refs]}
        buffers = [{"rank": 1 - rank, "type": buffer, "access_channel_types": [kind]} for buffer in reach]
        counts = dict(zip(("input_chunks", "output_chunks", "scratch_chunks"), chunks, strict=True))
        channels = [{"channel_type": kind, "connected_to": [1 - rank]}]
        gpus.append({"id": rank, **counts, "threadblocks": [block], "channels": channels, "remote_buffers": buffers})
    return {"name": "hand", "collective": collective, "protocol": "Simple", "inplace": True, "gpus": gpus}


def by_put(kind: str, put: str = "put") -> Json:
    """ALLGATHER in place: each puts its chunk; by a port, it also waits until the other has it."""
    ops = []
    for rank in range(2):
        sent = [moved(put, own("o", rank), theirs(0, rank), kind)]
        sent += [NOP, sync("signal", kind)] if put == "put" else []
        back = [sync("signal", kind), sync("wait", kind)] if kind == "port" and put != "pwsf" else []
        ops.append([*meeting(kind), *sent, sync("wait", kind), NOP, *back])
    return pair("allgather", (1, 2, 0), ops, kind)


def by_get() -> Json:
    ops = [
        [*meeting(), moved("get", theirs(0, 1 - r), own("o", 1 - r)), NOP, sync("signal"), sync("wait")] for r in (0, 1)
    ]
    return pair("allgather", (1, 2, 0), ops)


def by_read() -> Json:
    """ALLREDUCE in place: each adds its half to the peer's, and writes the sum to both (rres); then it tells."""
    ops = []
    for rank in range(2):
        both = [own("i", rank), theirs(0, rank)]
        ops.append([*meeting(), summed("rres", both, both), NOP, sync("signal"), sync("wait")])
    return pair("allreduce", (2, 2, 0), ops, reach="i")


def by_scratch() -> Json:
    """ALLREDUCE in place: a put to scratch, a sum there, and the sum to both (res)."""
    ops = []
    for rank in range(2):
        start = [
            *meeting(),
            moved("put", own("i", 1 - rank), theirs(1, 0)),
            NOP,
            sync("signal"),
            sync("wait"),
            NOP,
        ]
        add = summed("res", [own("i", rank), own("s", 0)], [own("i", rank), theirs(0, rank)])
        ops.append([*start, add, NOP, sync("signal"), sync("wait")])
    return pair("allreduce", (2, 2, 1), ops, reach="is")


def by_reading_only() -> Json:
    """REDUCESCATTER in place: the sum of both goes to the own part only (rre)."""
    ops = [
        [
            *meeting(),
            summed("rre", [own("i", r), theirs(0, r)], [own("i", r)]),
            NOP,
            sync("signal"),
            sync("wait"),
        ]
        for r in (0, 1)
    ]
    return pair("reducescatter", (2, 1, 0), ops, reach="i")


HAND_WRITTEN: dict[str, Callable[[], Json]] = {
    "put by memory": lambda: by_put("memory"),
    "put by port": lambda: by_put("port"),
    "pws": lambda: by_put("port", "pws"),
    "pwsf": lambda: by_put("port", "pwsf"),
    "get": by_get,
    "rres": by_read,
    "res": by_scratch,
    "rre": by_reading_only,
}


def read(data: Json) -> Plan:
    return parse_plan(json.dumps(data), "p.json")


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_each_operation_does_what_it_should(name):
    verdict = judge(read(HAND_WRITTEN[name]()))
    assert verdict.problems == ()
    assert verdict.collective is not None


def test_out_of_place_needs_a_copy_of_the_own_chunk():
    data = by_put("memory")
    data["inplace"] = False
    for rank, gpu in enumerate(data["gpus"]):
        ops = gpu["threadblocks"][0]["ops"]
        ops[3]["src_buff"] = [own("i", 0)]
        ops.append(copied(own("i", 0), own("o", rank)))
    assert judge(read(data)).is_valid
    del data["gpus"][0]["threadblocks"][0]["ops"][-1]
    assert [str(each) for each in judge(read(data)).problems] == [
        "gpu 0: rank 0 output chunk 0: expected rank 0's input 0, but nothing was written there [missing-chunk]"
    ]


def test_operations_that_the_executor_may_not_carry_out_are_warned_of():
    (warning,) = judge(read(by_put("port", "pwsf"))).warnings
    assert warning.startswith("pwsf is judged by what it means; the executor's source as of commit ")


def test_a_collective_that_nobody_knows_is_executed_and_not_judged():
    data = {**by_put("memory"), "collective": "halo"}
    verdict = judge(read(data))
    assert verdict.is_valid
    assert (
        "halo on 2 GPUs (MSCCL++ plan): well-formed, no deadlock, no race; its result can't be judged"
        in verdict.summary()
    )
    assert judge(read(data), "allgather").collective is not None
    with pytest.raises(InputError, match=r"collective: must be one of .*, got 'broadcast'"):
        judge(read(data), "broadcast")


# -- single mistakes in hand-written plans -----------------------------------------------------------------------------


def ops_of(data: Json, rank: int = 0) -> list[Json]:
    ops: list[Json] = data["gpus"][rank]["threadblocks"][0]["ops"]
    return ops


def without(name: str, turn: int = 0) -> Callable[[Json], None]:
    """The `turn`-th operation of a name is left out on GPU 0."""

    def change(data: Json) -> None:
        at = [k for k, op in enumerate(ops_of(data)) if op["name"] == name][turn]
        del ops_of(data)[at]

    return change


def on_gpu(**fields: Any) -> Callable[[Json], None]:
    return lambda data: data["gpus"][0].update(fields)


def on_block(**fields: Any) -> Callable[[Json], None]:
    return lambda data: data["gpus"][0]["threadblocks"][0].update(fields)


def on_put(**fields: Any) -> Callable[[Json], None]:
    return lambda data: ops_of(data)[3].update(fields)


def add_ops(*ops: Json) -> Callable[[Json], None]:
    return lambda data: ops_of(data).extend(ops)


def by_put_memory() -> Json:
    return by_put("memory")


def by_put_port() -> Json:
    return by_put("port")


MISTAKES: dict[str, tuple[Callable[[], Json], Callable[[Json], None], str]] = {
    "wrong gpu id": (by_get, on_gpu(id=1), "gpu-ids"),
    "byte range reversed": (by_get, lambda d: d.update(min_message_size=9, max_message_size=8), "byte-range"),
    "one GPU has more chunks": (by_get, on_gpu(output_chunks=3), "chunk-count"),
    "chunks of another collective": (by_get, lambda d: d.update(collective="alltoall"), "chunk-count"),
    "more chunks than memory": (
        by_get, lambda d: [gpu.update(scratch_chunks=2**31 - 1) for gpu in d["gpus"]], "chunk-count",
    ),
    "channel to itself": (by_get, on_gpu(channels=[{"channel_type": "memory", "connected_to": [0]}]), "peer"),
    "channel to nobody": (by_get, on_gpu(channels=[{"channel_type": "memory", "connected_to": [2]}]), "peer"),
    "peer without a channel back": (
        by_get, lambda d: d["gpus"][1].update(channels=[], threadblocks=[]), "peer-side",
    ),
    "wrong block id": (by_get, on_block(id=1), "tb-ids"),
    "too many operations": (by_get, add_ops(*[NOP] * 64), "op-limit"),
    "channel that is not the gpu's": (
        by_get, on_block(channels=[{"channel_type": "memory", "channel_ids": [1]}]), "channel",
    ),
    "too many channels": (
        by_get, on_block(channels=[{"channel_type": "memory", "channel_ids": [0] * 17}]), "channel-limit",
    ),
    "channel of two blocks": (
        by_get,
        lambda d: d["gpus"][0]["threadblocks"].append(
            {"id": 1, "ops": [], "channels": [{"channel_type": "memory", "channel_ids": [0]}]}
        ),
        "channel-shared",
    ),
    "remote buffer that is not the gpu's": (
        by_get, on_block(remote_buffer_refs=[{"access_channel_type": "memory", "remote_buffer_ids": [1]}]),
        "remote-buffer",
    ),
    "remote buffer of the other access": (
        by_get, on_block(remote_buffer_refs=[{"access_channel_type": "port", "remote_buffer_ids": [0]}]),
        "remote-buffer",
    ),
    "too many remote buffers": (
        by_get, on_block(remote_buffer_refs=[{"access_channel_type": "memory", "remote_buffer_ids": [0] * 17}]),
        "remote-limit",
    ),
    "put to a buffer that is not the block's": (by_put_memory, on_put(dst_buff=[theirs(1, 0)]), "remote-buffer"),
    "put to the own buffer": (by_put_memory, on_put(dst_buff=[own("o", 0)]), "buffer"),
    "put from the peer": (by_put_memory, on_put(src_buff=[theirs(0, 0)]), "buffer"),
    "put beyond the buffer": (by_put_memory, on_put(dst_buff=[theirs(0, 2)]), "offset"),
    "sizes that differ": (by_put_memory, on_put(dst_buff=[theirs(0, 0, 2)]), "size"),
    "nothing to put": (by_put_memory, on_put(src_buff=[], dst_buff=[]), "span-count"),
    "copy by a channel": (by_put_memory, on_put(name="copy"), "channel-type"),
    "pws by memory": (by_put_memory, on_put(name="pws"), "channel-type"),
    "get to another index": (by_get, lambda d: ops_of(d)[3].update(dst_buff=[own("o", 0)]), "index"),
    "channel that is not the block's": (by_get, lambda d: ops_of(d)[0].update(channel_ids=[1]), "channel"),
    "signal to nobody": (by_get, lambda d: ops_of(d)[0].update(channel_ids=[]), "channel-count"),
    "port put without a channel": (by_put_port, on_put(channel_ids=[]), "channel-count"),
    "semaphore that is not there": (by_get, add_ops({"name": "sem_release", "semaphore_ids": [0]}), "semaphore"),
    "sum of two sizes": (by_read, lambda d: ops_of(d)[3].update(src_buff=[own("i", 0, 2), theirs(0, 0)]), "size"),
    "no word that it has started": (by_put_memory, without("signal"), "deadlock"),
    "not waiting for the peer's start": (by_put_memory, without("wait"), "not-ready|late-access|unbalanced"),
    "threads do not meet before the signal": (by_put_memory, without("nop", 1), "late-access|race"),
    "threads do not meet before they read": (by_scratch, without("nop", 2), "race"),
    "no put": (by_put_memory, without("put"), "missing-chunk"),
    "no word of the data": (by_put_memory, without("signal", 1), "deadlock"),
    "not waiting for the data": (by_put_memory, without("wait", 1), "late-access|unbalanced"),
    "one signal too many": (by_put_memory, add_ops(sync("signal")), "unbalanced"),
    "leaving before the port has read": (
        by_put_port, lambda d: (ops_of(d).pop(), ops_of(d, 1).pop(-2)), "late-access",
    ),
    "writing what a port still reads": (
        by_put_port, lambda d: ops_of(d).insert(4, copied(own("o", 1), own("o", 0))), "race",
    ),
    "reading what nobody wrote": (by_scratch, without("put"), "unwritten-read|wrong-chunk"),
    "added twice": (
        by_read, lambda d: ops_of(d)[3]["src_buff"].append(theirs(0, 0)), "wrong-chunk",
    ),
    "wrong chunk": (by_put_memory, on_put(src_buff=[own("o", 1)]), "unwritten-read|race|wrong-chunk"),
}  # fmt: skip


@pytest.mark.parametrize("title", MISTAKES)
def test_each_single_mistake_is_refused_for_its_reason(title):
    make, change, reason = MISTAKES[title]
    data = make()
    change(data)
    rules = {problem.rule for problem in judge(read(data)).problems}
    assert any(re.fullmatch(reason, rule) for rule in rules), rules


def test_a_semaphore_that_two_blocks_release_or_that_starts_above_0_is_not_covered():
    data = by_get()
    gpu = data["gpus"][0]
    gpu["semaphores"] = [{"init_value": 1}]
    gpu["threadblocks"] += [
        {"id": k, "ops": [{"name": "sem_release", "semaphore_ids": [0]}], "channels": []} for k in (1, 2)
    ]
    messages = [problem.message for problem in judge(read(data)).problems]
    assert messages == [
        "semaphore 0 must have one block for sem_release, got [1, 2]: not covered",
        "semaphore 0 must start at 0, got 1: not covered",
    ]


# -- single mistakes in exported plans ---------------------------------------------------------------------------------


def between_nodes(schedule: Schedule) -> Schedule:
    ranks = len(schedule.topology.node_of_device)
    nodes = tuple(2 * rank // ranks for rank in range(ranks))
    return dataclasses.replace(schedule, topology=dataclasses.replace(schedule.topology, node_of_device=nodes))


EXPORTED = {
    "allgather": lambda: ring_allgather(4, 2),
    "reducescatter": lambda: pairs_reducescatter(4, 1),
    "allreduce": lambda: ring_allreduce(4, 1),
    "alltoall": lambda: relayed_alltoall(4),
}


@pytest.fixture(scope="module", params=[(name, place) for name in EXPORTED for place in ("in-place", "out-of-place")])
def plan(request: pytest.FixtureRequest) -> Plan:
    name, placement = request.param
    collective, schedule = EXPORTED[name]()
    return lower(between_nodes(schedule), collective, placement=placement)


def sites(plan: Plan) -> Iterator[tuple[int, Block, int, Operation]]:
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            for at, operation in enumerate(block.ops):
                yield gpu.id, block, at, operation


def with_ops(plan: Plan, rank: int, block: Block, ops: tuple[Operation, ...]) -> Plan:
    gpu = plan.gpus[rank]
    blocks = tuple(dataclasses.replace(each, ops=ops) if each is block else each for each in gpu.threadblocks)
    gpus = tuple(dataclasses.replace(each, threadblocks=blocks) if each is gpu else each for each in plan.gpus)
    return dataclasses.replace(plan, gpus=gpus)


@pytest.mark.thorough("plan4", "plan5")
def test_leaving_out_any_operation_that_moves_or_tells_is_found(plan):
    for rank, block, at, operation in sites(plan):
        if operation.name != "nop":
            broken = with_ops(plan, rank, block, block.ops[:at] + block.ops[at + 1 :])
            assert not judge(broken).is_valid, (rank, block.id, at, operation)


def test_leaving_out_a_nop_around_data_is_found(plan):
    """Between a wait and what it tells of, or between data and a signal; elsewhere nothing may depend on it."""
    for rank, block, at, operation in sites(plan):
        around = [each.name for each in block.ops[max(0, at - 1) : at + 2]]
        # A later signal may come in time for whoever relies on this one.
        is_last = all(each.name != around[-1] for each in block.ops[at + 2 :])
        tells = is_last and around[-1] in ("signal", "sem_release") and around[0] in ("put", "re", "copy")
        learns = around[0] == "wait" and around[-1] in ("put", "re", "pws")
        if operation.name == "nop" and (tells or learns):
            broken = with_ops(plan, rank, block, block.ops[:at] + block.ops[at + 1 :])
            assert not judge(broken).is_valid, (rank, block.id, at, around)


def test_any_other_place_of_data_is_found(plan):
    for rank, block, at, operation in sites(plan):
        for field in ("src", "dst"):
            for chunks in getattr(operation, field)[:1]:
                index = chunks.index - 1 if chunks.index else 1
                other = dataclasses.replace(
                    operation, **{field: (dataclasses.replace(chunks, index=index), *getattr(operation, field)[1:])}
                )
                broken = with_ops(plan, rank, block, (*block.ops[:at], other, *block.ops[at + 1 :]))
                assert not judge(broken).is_valid, (rank, block.id, at, field)


def test_a_written_plan_is_compact_and_says_where_it_belongs(plan):
    text = plan_text(plan)
    assert len(text) < 200 * sum(len(block.ops) for gpu in plan.gpus for block in gpu.threadblocks)
    assert json.loads(text)["protocol"] == "Simple"
