"""The wire: entries that stay on their device, links that are held, blocks that are used while others come."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks

from gapless.torch.ddp import emulation
from gapless.torch.sparse import relay
from gapless.torch.sparse.allreduce import Entries, RunningSum, TopkAllgather, added
from gapless.torch.sparse.baselines import largest
from gapless.torch.sparse.relay import EmulatedLink, Hop, Relay, Wire
from gapless.torch.sparse.selection import Threshold

CPU = torch.device("cpu")


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("estimate", ["exact", "gaussian-adjusted"])
def test_selecting_packing_and_adding_make_nothing_on_another_device_than_the_entries(estimate: str) -> None:
    """Whatever doesn't name the entries' device would be made on `meta`, where it has no values and mixes with none."""
    values = torch.randn(200, generator=torch.Generator().manual_seed(0))
    exchange = TopkAllgather()
    with torch.device("meta"):
        places = Threshold(20, estimate=estimate).best(values)
        given = Entries(places, values[places])
        again = Entries.unpacked(given.packed(), CPU)
        sums = added([given, again], 0, 200)
        kept = largest(sums, 5)
        gathered = exchange(given, 200, 0)
        none = Entries.joined([], CPU)
    for each in (given, again, sums, kept, gathered, none):
        assert each.places.device == each.values.device == CPU
    assert torch.equal(sums.values, 2 * given.values)
    assert torch.equal(gathered.values, given.values)


@pytest.mark.usefixtures("one_rank")
def test_a_link_holds_messages_one_after_the_other_and_each_direction_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    until_s, wire = list[float](), Wire(None, EmulatedLink(1000.0, 0.5))
    monkeypatch.setattr(relay, "sleep_until", until_s.append)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    for direction, size_bytes in (("in", 500), ("in", 1000), ("out", 2000), ("out", 1000)):
        wire.wait(direction, size_bytes)
    wire.wait("in", 0, 3)
    assert until_s == [101.0, 102.5, 100.0, 102.5, 104.0]
    Wire().wait("in", 10**9)
    assert len(until_s) == 5
    assert emulation.sleep_until is not relay.sleep_until


def test_a_running_sum_has_the_bits_of_adding_in_turn() -> None:
    total = RunningSum(10, 20, CPU)
    for values in ([0.1, 0.2], [0.3, 0.7]):
        total.add(Entries(torch.tensor([11, 15]), torch.tensor(values)))
    found = total.entries()
    assert found.places.tolist() == [11, 15]
    assert torch.equal(found.values, torch.tensor([0.1, 0.2]) + torch.tensor([0.3, 0.7]))


def _program(rank: int, folder: Path) -> dict[str, Any]:
    """Rank 0 uses each block of rank 1 as it comes."""
    carried, used = Relay(Wire(None, EmulatedLink(1e9, 0.0))), list[int]()
    own = {2 * rank: torch.full((3,), rank, dtype=torch.int32), 2 * rank + 1: torch.full((2,), 7, dtype=torch.int32)}
    hops = [Hop(1, 0, (2,)), Hop(0, 1, (0,)), Hop(1, 0, (3,))]

    def meanwhile(block: Any) -> None:
        used.extend(int(block(number)[0]) for number in (2, 3))

    blocks = carried(hops, own, [3, 2, 3, 2], meanwhile if rank == 0 else lambda block: None)
    return {"used": used, "blocks": sorted(blocks), "words": carried.received_words}


@pytest.mark.thorough
def test_blocks_are_used_as_they_come(tmp_path: Path) -> None:
    first, second = run_ranks(_program, 2, tmp_path)
    assert first["used"] == [1, 7]
    assert (first["blocks"], first["words"]) == ([0, 1, 2, 3], 5)
    assert (second["blocks"], second["words"]) == ([0, 2, 3], 3)
