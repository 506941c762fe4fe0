"""Traces in Chrome's format: well-formed for every plan, and true to the schedule."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chrome_trace import faults
from small_plans import SYSTEMS, small_plan

from gapless.checker import check
from gapless.cli.main import main
from gapless.io.formats.perfetto import trace_events, trace_text
from gapless.ir.schedule import Schedule
from gapless.result import read_saved


def trace_of(schedule: Schedule) -> dict[str, Any]:
    return json.loads(trace_text(trace_events(schedule)))


@pytest.fixture(scope="module", params=SYSTEMS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Schedule, Path]:
    """The schedule of a plan of each system, and its trace as the command line exports it."""
    folder = tmp_path_factory.mktemp(request.param)
    plan, trace = small_plan(request.param, folder), folder / "trace.json"
    assert main(["export", str(plan), "--format", "perfetto", "-o", str(trace)]) == 0
    return read_saved(str(plan)).schedule, trace


@pytest.mark.thorough("taccl")
def test_trace_of_every_system_keeps_the_rules_of_the_format(exported: tuple[Schedule, Path]) -> None:
    assert faults(json.loads(exported[1].read_text())) == []


@pytest.mark.thorough("taccl")
def test_every_event_is_in_the_trace_and_a_transfer_on_both_ends(exported: tuple[Schedule, Path]) -> None:
    schedule, path = exported
    seen = Counter(
        event["args"]["event"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] in "Xi"
    )
    assert seen == {number: 2 if schedule.is_transfer[number] else 1 for number in range(len(schedule))}


def test_processes_are_the_devices_and_tell_what_the_plan_is(exported: tuple[Schedule, Path]) -> None:
    schedule, path = exported
    trace = json.loads(path.read_text())
    assert len({event["pid"] for event in trace["traceEvents"]}) == schedule.topology.device_count
    assert {"gapless", "system", "problem", "claim"} <= set(trace["otherData"])


def test_transfers_that_take_time_have_a_flow_from_send_to_receive(exported: tuple[Schedule, Path]) -> None:
    schedule, path = exported
    flows = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] in "sf"]
    sends = [event for event in flows if event["ph"] == "s" and event["name"] in ("transfer", "reduce")]
    lasting = schedule.is_transfer & (schedule.end_s - schedule.start_s > 1e-9)
    assert len(sends) == lasting.sum()
    if lasting.any():
        ends = {event["id"]: event["pid"] for event in flows if event["ph"] == "f"}
        links = {(link.source + 1, link.target + 1) for link in schedule.topology.links}
        assert {(send["pid"], ends[send["id"]]) for send in sends} <= links


def test_memory_counter_reaches_the_peak_of_the_replay(exported: tuple[Schedule, Path]) -> None:
    schedule, path = exported
    levels: dict[int, list[int]] = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "C" and event["name"] == "memory":
            levels.setdefault(event["pid"] - 1, []).append(event["args"]["bytes"])
    peaks = check(schedule).peak_bytes
    assert {device: max(held) for device, held in levels.items() if max(held)} == {
        device: peak for device, peak in enumerate(peaks) if peak
    }


def test_link_counter_goes_up_with_sends_and_back_to_zero(exported: tuple[Schedule, Path]) -> None:
    schedule, path = exported
    last: dict[int, int] = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "C" and event["name"] == "links sending":
            assert event["args"]["links"] >= 0
            last[event["pid"]] = event["args"]["links"]
    assert set(last.values()) <= {0}
    assert bool(last) == bool((schedule.is_transfer & (schedule.end_s > schedule.start_s)).any())


def test_random_schedules_give_well_formed_traces(random_schedule: Callable[[random.Random], Schedule]) -> None:
    for seed in range(150):
        assert faults(trace_of(random_schedule(random.Random(seed)))) == [], seed


def test_collective_has_a_flow_from_what_made_its_input(tmp_path: Path) -> None:
    schedule = read_saved(str(small_plan("cupcake", tmp_path))).schedule
    events = trace_events(schedule)
    names = {(event["pid"], event["tid"], event["ts"]): event["name"] for event in events if event["ph"] == "X"}
    ends: dict[int, list[str]] = {}
    for event in events:
        if event["ph"] in "sf":
            ends.setdefault(event["id"], []).append(names[event["pid"], event["tid"], event["ts"]])
    assert ["encode 0", "collective 0"] in ends.values()
    assert len(ends) == sum(op.kind == "collective" for op in schedule.graph.ops)


def test_events_that_name_unknown_things_are_left_out(tmp_path: Path) -> None:
    schedule = read_saved(str(small_plan("taccl", tmp_path))).schedule
    place = schedule.place.copy()
    place[0] = 10**6
    broken = trace_of(replace(schedule, place=place))
    assert faults(broken) == []
    assert 0 not in {event["args"]["event"] for event in broken["traceEvents"] if event["ph"] in "Xi"}


def test_validator_finds_what_is_wrong() -> None:
    def slice_at(ts: float, dur: float, tid: int = 1) -> dict[str, Any]:
        return {"ph": "X", "name": "a", "cat": "c", "pid": 1, "tid": tid, "ts": ts, "dur": dur}

    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "p"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "t"}},
    ]
    start = {"ph": "s", "name": "n", "cat": "flow", "id": 0, "pid": 1, "tid": 1, "ts": 0.0}
    assert faults({"traceEvents": [*names, slice_at(0.0, 2.0), slice_at(2.0, 1.0)]}) == []
    assert "overlaps" in faults({"traceEvents": [*names, slice_at(0.0, 2.0), slice_at(1.0, 2.0)]})[0]
    assert "order of time" in faults({"traceEvents": [*names, slice_at(3.0, 1.0), slice_at(1.0, 1.0)]})[0]
    assert "no name" in faults({"traceEvents": [*names, slice_at(0.0, 1.0, tid=7)]})[0]
    assert "one start, then one end" in faults({"traceEvents": [*names, slice_at(0.0, 1.0), start]})[0]
    assert "a slice takes time" in faults({"traceEvents": [*names, slice_at(0.0, 0.0)]})[0]
