"""Plan files hold all that is needed to replay them, and nothing else is trusted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gapless.checker import check
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, plan_text, read_plan, write_plan
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Ragged, Schedule, schedule_from_events
from gapless.ir.switch_ops import SwitchOps
from gapless.topologies.ports.congestion import Congestion, Slowdown
from gapless.topologies.ports.switch_groups import Reduction, SwitchGroup
from gapless.topologies.topology import Link, Nic, Switch, Topology


def rich_schedule() -> Schedule:
    """A schedule that uses every field: updates, needs, in-place, frees, reductions, memory, NICs, switches."""
    graph = Graph(
        size_bytes=np.array([8, 8, 4, 4]),
        tensor_names=("weight", "weight'", "gradient", "step"),
        ops=(
            Op("grad", (0,), (2,), (Implementation(1.0, 16, name="slow"), Implementation(0.5)), adds=1, needs={0: 1}),
            Op("step", (2,), (3,), (Implementation(1.0, 0, (2,), (2,), "fast", 7.5),), kind="update"),
            Op("touch", (3,), (3,), (Implementation(0.0),), adds=2, updates=(3,)),
        ),
        initial=Placement.of([(0, 0), (1, 0), (1, 1)], [1, 1, 2]),
        required=Placement.of([(1, 1)], [3]),
    )
    topology = Topology(
        name="two",
        node_of_device=(0, 1),
        links=(Link(0, 1, 0.25, 0.125, (0,)),),
        resources=("wire",),
        nics=(Nic(0, (0,)), Nic(1, (1,))),
        switches=(Switch(0, (0,)),),
        engines=((0, "stream"), (0, "copy"), (1, "stream")),
        memory_bytes=(1000, math.inf),
        congestion=(Congestion(((0,),), Slowdown((1, 2), (1.0, 1.5))),),
        switch_groups=(SwitchGroup((0, 1), Reduction(alpha_s=0.25, beta_s_per_byte=0.125, slots=2), ((0, 0), (0, 0))),),
    )
    events = [
        Event(EventKind.COMPUTE, 0.0, 1.0, 0, op=0, implementation=0),
        Event(EventKind.TRANSFER, 0.0, 1.25, 0, moves=(1,), reduces=True),
        Event(EventKind.COLLECTIVE, 1.0, 2.0, 1, op=1, frees=((3, 0), (0, 0))),
    ]
    switch_ops = SwitchOps(np.array([-1, 0, -1]), np.array([0]))
    return replace(schedule_from_events(graph, topology, events, name="rich"), switch_ops=switch_ops)


def saved() -> SavedPlan:
    return SavedPlan("test", {"what": "all"}, {"status": "optimal"}, {"ratio": 1.0}, rich_schedule())


def test_plan_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan.json", saved())
    back = read_plan(tmp_path / "plan.json")
    assert plan_text(back) == plan_text(saved())
    assert list(back.schedule.events()) == list(rich_schedule().events())
    assert back.schedule.graph.ops == rich_schedule().graph.ops
    assert back.schedule.topology == rich_schedule().topology
    assert back.schedule.switch_ops == rich_schedule().switch_ops
    assert (back.system, back.problem, back.claim) == ("test", {"what": "all"}, {"status": "optimal"})


def test_replay_of_the_file_is_the_replay_of_the_schedule(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan.json", saved())
    before, after = check(rich_schedule()), check(read_plan(tmp_path / "plan.json").schedule)
    assert before.valid, before.summary()
    assert before == after


def test_equal_plans_give_equal_bytes() -> None:
    assert plan_text(saved()) == plan_text(saved())
    assert json.loads(plan_text(saved()))["format"] == "gapless.plan"


def test_each_set_of_contributions_stands_there_once() -> None:
    assert json.loads(plan_text(saved()))["graph"]["initial"]["contributions"] == {
        "sets": ["0x1", "0x2"],
        "of": [0, 0, 1],
    }


def test_sets_may_stand_there_one_by_one_as_they_did(tmp_path: Path) -> None:
    data = json.loads(plan_text(saved()))
    for placement in (data["graph"]["initial"], data["graph"]["required"]):
        sets = placement["contributions"]
        placement["contributions"] = [sets["sets"][number] for number in sets["of"]]
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert plan_text(read_plan(tmp_path / "plan.json")) == plan_text(saved())


def test_a_set_that_is_not_there_is_refused(tmp_path: Path) -> None:
    data = json.loads(plan_text(saved()))
    data["graph"]["initial"]["contributions"]["of"][2] = 2
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"of: must be a list of numbers of the 2 sets, from 0"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("count", [3, 5000])
def test_columns_are_written_as_json_has_them(count: int) -> None:
    rng = np.random.default_rng(count)
    numbers = rng.choice([0.0, -0.0, 1e-9, 2.0, 1 / 3], count)
    places = rng.integers(-1, 7, count)
    sizes = rng.integers(0, 2**60, count)
    one = rich_schedule()
    columns = {"kind": places, "start_s": numbers, "end_s": rng.random(count), "place": places, "op": sizes,
               "implementation": places, "reduces": rng.random(count) < 0.5}  # fmt: skip
    lists = Ragged(np.arange(count + 1), places)
    switch_ops = SwitchOps(np.full(count, -1), np.array([0]))
    freed = {"freed_tensor": Ragged.empty(count), "freed_device": Ragged.empty(count)}
    many = replace(one, moves=lists, switch_ops=switch_ops, **freed, **columns)
    written = plan_text(replace(saved(), schedule=many)).splitlines()[-1]
    for name, column in columns.items():
        assert f'"{name}": {json.dumps(column.tolist())}' in written
    assert f'"moves": {json.dumps({"start": lists.start.tolist(), "values": places.tolist()})}' in written
