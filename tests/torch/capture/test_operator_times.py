"""What operators are timed on, and what counts as their time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gapless.torch.capture import capture
from gapless.torch.capture.timing import profile

ROWS = 300


class Words(nn.Module):
    """Rows of a table, by places that may be moved first."""

    def __init__(self, moved: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.table, self.moved = nn.Embedding(ROWS, 4), moved

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        return self.table(self.moved(places)).square().sum()


class LargestPlace(TorchDispatchMode):
    """Notes the largest place that an embedding is asked for."""

    found = -1

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.embedding.default:
            self.found = max(self.found, int(args[1].max()))
        return func(*args, **(kwargs or {}))


def largest_place(moved: Callable[[torch.Tensor], torch.Tensor]) -> int:
    step = capture(Words(moved), (torch.zeros(8, 16, dtype=torch.int64),))
    with LargestPlace() as noted:
        profile(step, repeats=1)
    return noted.found


def test_places_are_spread_over_the_table() -> None:
    assert ROWS // 2 < largest_place(lambda places: places) < ROWS
    assert ROWS // 2 < largest_place(lambda places: places.t()[1:].contiguous()) < ROWS


def test_places_that_something_else_reads_stay_in_any_table() -> None:
    assert largest_place(lambda places: places * 2 + 1) == 1  # random ones might be outside


def test_a_view_costs_its_first_reader_alone(tmp_path: Path) -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3, 5))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            turned = (given * self.weight).transpose(0, 1)
            return (turned.exp() * turned.sin()).sum()

    step, cache = capture(Turned(), (torch.rand(3, 5),)), tmp_path / "ops.json"
    profile(step, cache, repeats=1)
    data = json.loads(cache.read_text())
    for entries in data["ops"].values():
        assert any("transpose" in key for key in entries)
        entries.update({key: [float("transpose" in key), 0] for key in entries})
    cache.write_text(json.dumps(data))
    graph = profile(step, cache).graph
    times = {node.op: node.implementations[0].duration_s for node in graph.forward if node.implementations}
    assert sorted((times["aten.exp.default"], times["aten.sin.default"])) == [0, 1]
    assert times["aten.mul.Tensor"] == 0
