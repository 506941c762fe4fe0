"""Switch channels of hand-written plans: what load-reduce-store and store do, and what is refused for its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gapless.io.mscclpp import judge, parse_plan

Json = dict[str, Any]
NOP: Json = {"name": "nop"}


def by_switch(ranks: int = 3) -> Json:
    """ALLREDUCE in place: all meet by relaxed signals, each adds up and stores the chunk of its number, all meet."""
    gpus = []
    for rank in range(ranks):
        ids = list(range(ranks - 1))
        meeting = [
            {"name": name, "channel_ids": ids, "channel_type": "memory"} for name in ("rlxsignal", "rlxwait")
        ]  # fmt: skip
        span = {"switch_channel_id": 0, "index": rank, "size": 1}
        summed = {"name": "glres", "src_buff": [span], "dst_buff": [span], "channel_type": "switch", "reduce_op": "sum"}
        links = [{"channel_type": "memory", "channel_ids": ids}, {"channel_type": "switch", "channel_ids": [0]}]
        block = {"id": 0, "ops": [*meeting, NOP, summed, NOP, *meeting], "channels": links, "remote_buffer_refs": []}
        group = {"size": ranks, "ranks": list(range(ranks))}
        channels = [
            {"channel_type": "memory", "connected_to": [other for other in range(ranks) if other != rank]},
            {"channel_type": "switch", "buffer_type": "i", "rank_groups": [group]},
        ]
        counts = {"input_chunks": ranks, "output_chunks": ranks, "scratch_chunks": 0}
        gpus.append({"id": rank, **counts, "threadblocks": [block], "channels": channels, "remote_buffers": []})
    return {"name": "hand", "collective": "allreduce", "protocol": "Simple", "inplace": True, "gpus": gpus}


def rules(data: Json) -> set[str]:
    return {problem.rule for problem in judge(parse_plan(json.dumps(data), "p.json")).problems}


def test_a_load_reduce_store_puts_the_sum_at_all_ranks() -> None:
    verdict = judge(parse_plan(json.dumps(by_switch()), "p.json"))
    assert verdict.is_valid, verdict.problems
    assert [warning.split()[0] for warning in verdict.warnings] == ["rlxsignal", "rlxwait"]


def test_a_store_puts_the_own_chunk_at_all_ranks() -> None:
    data = by_switch()
    data["collective"] = "allgather"
    for rank, gpu in enumerate(data["gpus"]):
        gpu["input_chunks"], gpu["channels"][1]["buffer_type"] = 1, "o"
        operation = gpu["threadblocks"][0]["ops"][3]
        operation["name"], operation["src_buff"] = "gstore", [{"type": "o", "index": rank, "size": 1}]
        del operation["reduce_op"]
    assert not rules(data)


def _group(gpu: Json) -> Json:
    return gpu["channels"][1]["rank_groups"][0]


MISTAKES: dict[str, tuple[str, Callable[[Json], object]]] = {
    "a meeting is left out": ("not-ready", lambda gpu: gpu["threadblocks"][0]["ops"].pop(1)),
    "no meeting of threads before the end": ("late-access", lambda gpu: gpu["threadblocks"][0]["ops"].pop(4)),
    "another chunk": ("race", lambda gpu: gpu["threadblocks"][0]["ops"][3]["src_buff"][0].update(index=1)),
    "no such channel": (
        "channel",
        lambda gpu: gpu["threadblocks"][0]["ops"][3]["src_buff"][0].update(switch_channel_id=1),
    ),
    "an own buffer": (
        "buffer",
        lambda gpu: gpu["threadblocks"][0]["ops"][3].update(src_buff=[{"type": "i", "index": 0, "size": 1}]),
    ),
    "beyond the buffer": ("offset", lambda gpu: gpu["threadblocks"][0]["ops"][3]["src_buff"][0].update(index=3)),
    "unlike sizes": ("size", lambda gpu: gpu["threadblocks"][0]["ops"][3]["src_buff"][0].update(size=2)),
    "a group without the own rank": ("switch-group", lambda gpu: _group(gpu).update(size=2, ranks=[1, 2])),
    "a wrong size": ("switch-group", lambda gpu: _group(gpu).update(size=2)),
    "another buffer than its peers": ("peer-side", lambda gpu: gpu["channels"][1].update(buffer_type="o")),
    "no such channel of the gpu": (
        "channel",
        lambda gpu: gpu["threadblocks"][0]["channels"][1].update(channel_ids=[0, 1]),
    ),
}


@pytest.mark.parametrize("title", MISTAKES)
def test_each_single_mistake_is_refused_for_its_reason(title: str) -> None:
    rule, change = MISTAKES[title]
    data = json.loads(json.dumps(by_switch()))  # no part of it stands in two places
    change(data["gpus"][0])
    assert rule in rules(data)
