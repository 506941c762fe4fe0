"""Plans of many plain ops: columns in files, read back as the same ops, and refused where they don't fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.io import plan_sections
from gapless.io.plan import SavedPlan, read_plan, write_plan
from gapless.ir.graph import Budget, Graph, Implementation, Op
from gapless.ir.schedule import schedule_from_events
from gapless.topologies.topology import Topology

SPENT = [((0, 1.5 * k),) if k % 3 else () for k in range(6)]
OPS = tuple(
    Op(f"f{k}", (k,) if k % 2 else (), (k + 1,), (Implementation(0.5 * k, spends=SPENT[k]),), "ab"[k % 2])
    for k in range(6)
)
GRAPH = Graph(np.arange(8), OPS, budgets=(Budget("cost", 99.0),))


def written(graph: Graph, path: Path) -> dict:
    write_plan(path, SavedPlan("none", {}, {}, {}, schedule_from_events(graph, Topology("one", (0,)), ())))
    return json.loads(path.read_text(encoding="utf-8"))


def test_many_plain_ops_are_columns_that_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    assert isinstance(written(GRAPH, path)["graph"]["ops"], list)
    monkeypatch.setattr(plan_sections, "_MANY_OPS", 4)
    assert isinstance(written(GRAPH, path)["graph"]["ops"], dict)
    assert read_plan(path).schedule.graph.ops == OPS
    two = replace(OPS[0], implementations=(Implementation(1.0), Implementation(2.0)))
    for other in (two, replace(OPS[0], adds=1), replace(OPS[0], implementations=(Implementation(1.0, 5),))):
        graph = replace(GRAPH, ops=(other, *OPS[1:]))
        assert isinstance(written(graph, path)["graph"]["ops"], list)
        assert read_plan(path).schedule.graph.ops == graph.ops


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("kind", [0, 1, 0, 1, 0], "all columns must have 6 entries"),
        ("amounts", [1.0], "all columns must have 6 entries"),
        ("kind", [0, 1, 0, 1, 0, 2], "numbers of the 2 kinds"),
        ("duration_s", "x", "duration_s"),
        ("outputs", {"start": [0, 9], "values": [1]}, "start must rise from 0"),
    ],
)
def test_columns_that_do_not_fit_are_one_line(
    name: str, value: object, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_sections, "_MANY_OPS", 4)
    data = written(GRAPH, tmp_path / "plan.json")
    data["graph"]["ops"][name] = value
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=says) as error:
        read_plan(tmp_path / "plan.json")
    assert "\n" not in str(error.value)
