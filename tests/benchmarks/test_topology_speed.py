"""How fast machines of a thousand ranks are built, with the counts that they must have."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.topologies.files import load_topology


@pytest.mark.parametrize(
    ("name", "nodes", "ranks", "links"),
    [
        ("dgx-h100", 128, 1024, 128 * 56 + 8 * 128 * 127),
        ("dgx-h100:nodes_per_leaf=16,uplinks_per_leaf=4", 128, 1024, 128 * 56 + 8 * 128 * 127),
        ("dgx2", 32, 512, 32 * 240 + 256 * 32 * 31),
        ("torus:16x8x8", None, 1024, 6 * 1024),
        ("fat-tree:k=16", None, 1024, 1024 * 1023),
    ],
)
def test_thousand_ranks_are_built(benchmark: Any, name: str, nodes: int | None, ranks: int, links: int) -> None:
    topology = benchmark.pedantic(load_topology, args=(name, nodes), rounds=2, warmup_rounds=0)
    assert (topology.device_count, len(topology.links)) == (ranks, links)
