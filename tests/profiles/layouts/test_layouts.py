"""Layouts as plans keep them."""

from __future__ import annotations

import pytest

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.io.typed import data_of, read_record
from gapless.profiles.layouts.layouts import MeshLayouts, NodeLayout, is_partial, replicated, split_dimension

NODES = (
    NodeLayout("primals_1", "parameter", outputs=("S0,R",), title="weight"),
    NodeLayout("mm", "aten.mm.default", ("S0,R", "R,R"), ("S0,R",)),
)


def test_layouts_are_read_as_they_were_written() -> None:
    layouts = MeshLayouts((2, 4), "abc", NODES)
    assert read_record(MeshLayouts, Record(data_of(layouts), "plan")) == layouts
    assert layouts.device_count == 8
    assert layouts.parameters == {"weight": "S0,R"}


def test_layouts_of_another_number_of_axes_are_refused() -> None:
    with pytest.raises(InputError, match="primals_1: a layout must have a part for each of the 1 axes"):
        MeshLayouts((8,), "abc", NODES)


def test_names_stand_once() -> None:
    with pytest.raises(InputError, match="one twice"):
        MeshLayouts((2, 4), "abc", (NODES[0], NODES[0]))


def test_parts_say_what_they_split() -> None:
    assert [split_dimension(part) for part in ("S0", "S12", "R", "P", "P(mask)")] == [0, 12, None, None, None]
    assert [is_partial(layout) for layout in ("S0,R", "R,P", "P(avg),S1")] == [False, True, True]
    assert replicated(3) == "R,R,R"
