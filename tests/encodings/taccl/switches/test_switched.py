"""Plans by switches that add up and multicast: what they come to on shipped machines, and what the answer says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import gapless
from gapless.checker import check
from gapless.encodings.taccl import Problem
from gapless.encodings.taccl.parameters import Parameters, Switches
from gapless.encodings.taccl.programs.export import communicators
from gapless.encodings.taccl.switches.bounds import switch_bounds_s
from gapless.encodings.taccl.switches.plans import switched_plan, why_not
from gapless.errors import InputError
from gapless.ir.collective import allreduce
from gapless.options import Deadline, SolveOptions
from gapless.result import Result
from gapless.solution import PlanClass
from gapless.topologies.fabric import Fabric
from gapless.topologies.files import load_topology
from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.switch_groups import Reduction
from gapless.topologies.topology import Topology

GB = 10**9
ALPHA_S, H100_S_PER_BYTE = 0.7e-6, 2.222222222e-12  # of a rank's port


def solved(**asked: object) -> Result:
    return gapless.taccl.solve(**{"topology": "dgx-h100", "collective": "allreduce", "size": GB, **asked})


def pods(nodes: int, ranks: int, inside: Reduction | None, between: Reduction | None = None) -> Topology:
    """Nodes of some ranks behind a switch, each rank with a NIC on a rail of its own."""
    switch = SwitchTemplate(tuple(range(ranks)), 1e-6, 1e-12, reduction=inside)
    nics = tuple(NicTemplate((rank,), 2e-6, 10e-12) for rank in range(ranks))
    node = NodeTemplate("node", ranks, switches=(switch,), nics=nics, fabric=Fabric(rails=True, reduction=between))
    return node.cluster(nodes)


def planned(topology: Topology, collective: str, size_bytes: int, **asked: int) -> float:
    """How long a plan by switches takes, which replays clean and is above the bound."""
    problem = Problem(topology, collective, size_bytes, **asked)
    plan = switched_plan(problem, Deadline(SolveOptions()), Switches())
    assert plan is not None
    report = check(plan.schedule)
    assert report.valid, report.summary()
    assert max(switch_bounds_s(problem.coarsest).values()) <= report.makespan_s * (1 + 1e-9)
    return report.makespan_s


SWITCH = Reduction(alpha_s=1e-6, beta_s_per_byte=1e-12)
LOOPED = replace(SWITCH, loopback=True, subsets=True)
RAIL = Reduction(reduces_to_all=True, alpha_s=2e-6, beta_s_per_byte=10e-12)


def test_eight_h100_reduce_faster_than_any_plan_of_transfers() -> None:
    """Each byte leaves a rank's port once, and eighths of the sums: 2.22 ms are the bound, 2.5 the limit of a shard a
    rank, and NCCL's measured 275 GB/s are 3.64 ms. What was the bound, 3.89 ms, holds for plain transfers alone.
    """
    result = solved()
    assert result.details["provenance"]["method"] == "switched"
    assert result.solution.bound == pytest.approx(ALPHA_S + GB * H100_S_PER_BYTE)
    assert 9 / 8 * GB * H100_S_PER_BYTE < result.report.makespan_s < 2.6e-3
    assert result.solution.bound_source == "ports"
    assert "operations add up or multicast" in str(result.details["switches"])


def test_without_what_its_switches_do_the_machine_has_its_old_bound() -> None:
    result = solved(no_switch_reduction=True)
    assert result.solution.bound == pytest.approx(3.89e-3, rel=0.01)
    assert result.schedule is not None
    assert result.schedule.switch_ops is None
    assert "switches" not in result.details


def test_the_answer_says_that_a_plan_makes_no_use_of_them() -> None:
    result = solved(collective="alltoall", size="1MB")
    assert result.details["switches"] == "not used, though they add up or multicast: each chunk is for one rank"
    assert result.schedule is not None
    assert result.schedule.topology.switch_groups
    (own,) = [bound for bound in result.solution.narrower if bound.plans is PlanClass.METHOD]
    assert own.name == "without operations of switches"
    assert own.value > (result.solution.bound or 0.0)


def test_one_step_broadcasts_in_no_more_than_the_bound() -> None:
    result = solved(collective="broadcast", size="64MB")
    assert result.report.makespan_s == pytest.approx(ALPHA_S + 64e6 * H100_S_PER_BYTE)
    assert result.status.value == "optimal"


@pytest.mark.parametrize(("collective", "bytes_through"), [("reducescatter", 7 / 8), ("allgather", 7), ("reduce", 1)])
def test_collectives_of_one_step(collective: str, bytes_through: float) -> None:
    size = 8_000_000
    assert planned(pods(1, 8, SWITCH), collective, size) == pytest.approx(1e-6 + bytes_through * size * 1e-12)


def test_a_switch_that_reduces_to_all_needs_one_step() -> None:
    everything = replace(SWITCH, reduces_to_all=True)
    assert planned(pods(1, 4, everything), "allreduce", 10**8) == pytest.approx(1e-6 + 1e8 * 1e-12)


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_nodes_exchange_their_sums(nodes: int) -> None:
    """By halving and doubling, or around a ring: near what must cross between nodes, 2 (n - 1) / n a NIC."""
    size = 4 * 10**9
    through_s = 2 * (nodes - 1) / nodes * size / 4 * 10e-12
    assert through_s < planned(pods(nodes, 4, LOOPED), "allreduce", size) < 1.25 * through_s


def test_rails_that_add_up_halve_what_crosses() -> None:
    size = 4 * 10**9
    through_s = size / 4 * 10e-12
    assert planned(pods(4, 4, LOOPED), "allreduce", size) > 1.5 * through_s
    assert planned(pods(4, 4, LOOPED, RAIL), "allreduce", size) < 1.25 * through_s


def test_slots_limit_the_operations_of_a_step() -> None:
    four = replace(SWITCH, slots=4)
    assert planned(pods(1, 8, four), "allreduce", 10**7) >= planned(pods(1, 8, SWITCH), "allreduce", 10**7)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"collective": "scatter"}, "each chunk is for one rank"),
        ({"method": "greedy"}, "one method is asked for"),
        ({"path_slack": 0.5}, "one method is asked for"),
        ({"collective": allreduce(8)}, "they are asked for collectives of all ranks, and of process groups"),
    ],
)
def test_what_has_no_plan_by_switches(asked: dict[str, object], why: str) -> None:
    values = {"collective": "allreduce", **asked}
    assert why_not(Problem(load_topology("dgx-h100"), size_bytes=1000, **values)) == why  # type: ignore[arg-type]


def test_asked_numbers_of_chunks_are_kept() -> None:
    result = solved(chunks=4)
    assert result.details["provenance"]["chunks"] == 4


def _taccl_ef(result: Result) -> object:
    from gapless.io.formats.collective_file import collective_of
    from gapless.io.taccl_ef.lower import lower

    return lower(result.schedule, collective_of(result.plan.problem, "plan"))


def _run(result: Result) -> object:
    from gapless.torch.collectives.steps import steps_of

    return steps_of(result.schedule)


@pytest.mark.parametrize("use", [_taccl_ef, _run])
def test_what_has_no_such_operations_refuses_them(use: Callable[[Result], object]) -> None:
    result = solved(size="1MB")
    with pytest.raises(
        InputError, match=r"plans must only send, got 32 operations .* again with --no-switch-reduction"
    ):
        use(result)


def test_a_sweep_for_msccl_asks_no_switch() -> None:
    from gapless.encodings.taccl.sweep.request import Request

    assert not Request(load_topology("dgx-h100"), "allreduce", (1000,)).topology.switch_groups


def test_chunks_that_are_given_are_only_sent() -> None:
    problem = Problem(load_topology("dgx-h100"), "allreduce", 1000).in_chunks(1)
    result = gapless.solve(problem)
    assert result.schedule is not None
    assert not result.schedule.topology.switch_groups


@pytest.mark.parametrize(("nodes", "group"), [(2, "tp=8"), (1, "tp=4")])
def test_process_groups_behind_switches_add_up_there_each_for_itself(nodes: int, group: str) -> None:
    """Groups that fill a node have it for themselves; two of four ranks in one share the steps of its switch."""
    asked = {"topology": "dgx-h100", "nodes": nodes, "group": [f"{group}:allreduce:64MB"]}
    result = gapless.taccl.solve(**asked)
    assert result.valid
    assert result.details["method"] == "switched"
    plain = gapless.taccl.solve(**asked, no_switch_reduction=True, parameters=Parameters().with_share(0.01))
    assert result.solution.bound < result.data["makespan_s"] < plain.data["makespan_s"]


@pytest.mark.thorough
def test_process_groups_that_share_ranks_or_lie_across_switches_are_planned_without_them() -> None:
    for group in ("tp=8,dp=2", "0-7"):
        groups = [f"{group}:allreduce:1MB", *(["4-11:allreduce:1MB"] if group == "0-7" else [])]
        result = gapless.taccl.solve("dgx-h100", nodes=2, group=groups, parameters=Parameters().with_share(0.01))
        assert result.valid
        assert "nothing is known by which they carry out" in str(result.details["switches"])


def test_the_plan_of_each_process_group_has_its_own_operations() -> None:
    result = gapless.taccl.solve("dgx-h100", group=["tp=4:allreduce:1MB"])
    parts = communicators(result.schedule, result.plan.problem)
    assert [part.ranks for part in parts] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    for part in parts:
        report = check(part.schedule)
        assert report.valid, report.summary()
        assert report.makespan_s == pytest.approx(result.data["makespan_s"])
        assert len(part.schedule.switch_ops.group) == len(result.schedule.switch_ops.group) / 2
