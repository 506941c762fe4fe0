"""Plans of `gapless solve taccl` beside rivals' on irregular networks: TACOS's rule, packed trees, a library's ring.

`pytest tests/benchmarks/test_taccl_rivals.py --tables FOLDER -k "ports-8 and allgather"`. All 26 networks, three
collectives and four sizes take an hour and a half of one core; `-k sampled` takes 62 questions, a fifth of them over
all classes. Rows of earlier runs are kept. Every plan, and every rival's, is replayed.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from result_tables import ResultTables
from rival_networks import rival_networks
from rival_plans import by_ring, by_tacos, by_trees

import gapless
from gapless.encodings.taccl import Problem
from gapless.ir.schedule import Schedule
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "hard_topologies"
HARD = ("asym12", "petersen", "regular20", "ring5", "torus-broken", "torus6x5-uneven")
GENERATED = {topology.name: topology for topology in rival_networks()}
COLLECTIVES = ("allgather", "reducescatter", "allreduce")
SIZES = {"1KB": 10**3, "64KB": 64 * 10**3, "1MB": 10**6, "64MB": 64 * 10**6}
RIVALS: dict[str, Callable[[Problem], Schedule | None]] = {"tacos": by_tacos, "trees": by_trees, "ring": by_ring}
TITLE = "Plans beside rivals' (us): the plan over each rival's, and over the bound"


def questions() -> list[object]:
    """Every network with every collective and size; a fifth of them, evenly chosen, are sampled."""
    found = []
    for i, network in enumerate((*HARD, *GENERATED)):
        for j, collective in enumerate(COLLECTIVES):
            for k, size in enumerate(SIZES):
                name = f"{network}-{collective}-{size}" + ("-sampled" if (i + 2 * j + k + j * k) % 5 == 0 else "")
                found.append(pytest.param(network, collective, size, id=name))
    return found


@pytest.mark.shortest("connected-6-allreduce-64KB")
@pytest.mark.parametrize(("network", "collective", "size"), questions())
@pytest.mark.usefixtures("keep_tables")
def test_no_plan_is_behind_a_rival(network: str, collective: str, size: str, tables: ResultTables) -> None:
    topology, begin_s = _topology(network), _cpu_s()
    answer = gapless.taccl.solve(topology, collective=collective, size=SIZES[size], threads=1)
    cpu_s = _cpu_s() - begin_s
    end_s, bound_s = (float(str(answer.data[name])) for name in ("makespan_s", "bound_s"))
    problem, rivals_s = Problem(topology, collective, SIZES[size]), dict[str, float]()
    for name, rival in RIVALS.items():
        schedule = rival(problem)
        if schedule is not None:
            rivals_s[name] = float(schedule.end_s.max())
    ratios = {f"to_{name}": round(end_s / rivals_s[name], 4) if name in rivals_s else None for name in RIVALS}
    tables.table("taccl_rivals", TITLE).add(
        f"{network} {collective} {size}",
        network=network,
        collective=collective,
        size=size,
        plan_us=round(1e6 * end_s, 2),
        best_rival=min(rivals_s, key=rivals_s.__getitem__),
        **ratios,
        to_bound=round(end_s / bound_s, 3),
        method=str(answer.data.get("method")),
        cpu_s=round(cpu_s, 1),
        rivals_cpu_s=round(_cpu_s() - begin_s - cpu_s, 1),
    )
    assert answer.valid
    assert min(rivals_s.values()) >= bound_s * (1 - 1e-9)
    assert end_s <= min(rivals_s.values()) * (1 + 1e-9)


def _topology(network: str) -> Topology:
    if network in GENERATED:
        return GENERATED[network]
    if not DATA.is_dir():
        pytest.skip(f"the topologies are not at {DATA}")
    return load_topology(None, 1, str(DATA / f"{network}.json"))


def _cpu_s() -> float:
    """Processor seconds of this process and of its workers."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
