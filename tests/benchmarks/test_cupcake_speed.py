"""How long the exact methods take, and what optimality buys: the optimum against each baseline, as Cupcake's Figure 9.

`pytest tests/benchmarks/test_cupcake_speed.py` prints both tables.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from espresso import COMPRESSORS, DATA, NETWORKS, fusion_profile
from result_tables import ResultTables

from gapless.encodings.cupcake.methods.baselines import all_baselines
from gapless.encodings.cupcake.solve import BestFusion, best_fusion
from gapless.options import SolveOptions
from gapless.profiles.gradients.cost_functions import AffineCost, PointsCost
from gapless.profiles.gradients.fusion import DECODES, Costs
from gapless.profiles.gradients.modes import Mode, plain_mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.gradients.profile_file import write_fusion_profile

ALGORITHM_1_S = 5.0


@pytest.fixture(autouse=True)
def _measured() -> None:
    if not DATA.is_file():
        pytest.skip(f"the measured gradients are not at {DATA}")


def _long(count: int) -> FusionProfile:
    """ResNet-101's gradients over and over, in another order each time."""
    once, rng = fusion_profile("resnet101", "dgc", affine=True), np.random.default_rng(0)
    order = np.concatenate([rng.permutation(once.tensor_count) for _ in range(count // once.tensor_count + 1)])[:count]
    names = tuple(f"gradient {number}" for number in range(count))
    return FusionProfile("long", once.forward_s, names, once.size_bytes[order], once.backward_s[order], once.modes)


def _papers(profile: FusionProfile) -> dict[str, Any]:
    """The paper's question: every group compressed, and decoding charged before the send."""
    return {"modes": profile.compressing, "decode": "before"}


def _timed(benchmark: Callable[..., BestFusion], profile: FusionProfile, method: str) -> BestFusion:
    asked = {"options": SolveOptions(threads=1), "method": method, **_papers(profile)}
    best = benchmark.pedantic(best_fusion, args=(profile,), kwargs=asked, rounds=5, warmup_rounds=1)  # type: ignore[attr-defined]
    assert isinstance(best, BestFusion)
    assert best.bound_s == best.iteration_s
    known = all_baselines(Costs.of(profile, **_papers(profile)))
    assert all(best.iteration_s <= baseline.iteration_s for baseline in known)
    info: dict[str, Any] = benchmark.extra_info  # type: ignore[attr-defined]
    info |= {"groups": len(best.groups), **best.details}
    return best


@pytest.mark.parametrize("count", [314, 1000, 5000])
def test_the_affine_programme(benchmark: Callable[..., BestFusion], count: int) -> None:
    _timed(benchmark, _long(count), "affine")


@pytest.mark.parametrize("affine", [True, False])
def test_label_setting_on_resnet101(benchmark: Callable[..., BestFusion], affine: bool) -> None:
    profile = fusion_profile("resnet101", "dgc", affine)
    best = _timed(benchmark, profile, "pareto")
    if affine:
        other = best_fusion(profile, method="affine", **_papers(profile))
        assert other.iteration_s == pytest.approx(best.iteration_s, rel=1e-9)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_whole_call_of_the_command_line(benchmark: Callable[..., Any], network: str, tmp_path: Path) -> None:
    profile, plan = tmp_path / "profile.json", tmp_path / "plan.json"
    write_fusion_profile(profile, fusion_profile(network, "dgc", affine=False))
    command = [sys.executable, "-m", "gapless", "solve", "cupcake", "--profile", str(profile), "-o", str(plan)]
    benchmark.pedantic(subprocess.run, args=(command,), kwargs={"check": True, "capture_output": True}, rounds=3)  # type: ignore[attr-defined]
    assert plan.is_file()


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_what_optimality_buys(
    benchmark: Callable[..., BestFusion], compressor: str, sized: Any, tables: ResultTables
) -> None:
    """Each baseline's step against the optimum, and how far Algorithm 1 gets in five seconds."""
    table = tables.table("cupcake_fusion", "Step time of the optimum, and how much longer a step takes otherwise")
    for network in NETWORKS:
        for affine in (True, False):
            profile = fusion_profile(network, compressor, affine)
            question = _papers(profile)
            best = best_fusion(profile, **question)
            known = all_baselines(Costs.of(profile, **question))
            slower = {baseline.name: baseline.iteration_s / best.iteration_s - 1 for baseline in known}
            assert all(share >= -1e-9 for share in slower.values())
            limit = SolveOptions(time_limit_s=sized(ALGORITHM_1_S, 0.2))
            searched = best_fusion(profile, limit, "algorithm1", **question)
            assert searched.iteration_s >= best.iteration_s * (1 - 1e-9)
            slower["algorithm1"] = searched.iteration_s / best.iteration_s - 1
            costs = "affine" if affine else "measured"
            shares = {name: f"{100 * share:.2f} %" for name, share in slower.items()}
            table.add(
                f"{network} {compressor} {costs}", network=network, compressor=compressor, costs=costs,
                step_ms=round(1e3 * best.iteration_s, 2), groups=len(best.groups), **shares,
                nodes=searched.details["nodes"], finished=str(searched.details["search_finished"]),
            )  # fmt: skip
    benchmark.pedantic(best_fusion, args=(profile,), rounds=1)  # type: ignore[attr-defined]


BESIDE = ("plain-buckets", "layer-wise", "selective", "selective-buckets", "buckets", "fusion-only")


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_what_the_choice_of_modes_buys(
    benchmark: Callable[..., BestFusion], compressor: str, decode: str, tables: ResultTables
) -> None:
    """How much faster the plan over groups and modes is than FP32, HiPress-like selection, the best bucket, and fusion
    alone, as Cupcake's Figure 6 and Table 1 compare them."""
    table = tables.table("cupcake_joint", "The optimum over groups and modes, and its speed-ups")
    for network in NETWORKS:
        profile = fusion_profile(network, compressor, affine=False)
        began_s = time.process_time()
        best = best_fusion(profile, SolveOptions(threads=1), decode=decode)
        cpu_s = time.process_time() - began_s
        assert best.bound_s == best.iteration_s
        costs = Costs.of(profile, decode=decode)
        other_s = {baseline.name: baseline.iteration_s for baseline in all_baselines(costs)}
        other_s["fusion-only"] = best_fusion(profile, modes=profile.compressing, decode=decode).iteration_s
        assert best.iteration_s <= min(other_s.values())
        table.add(
            f"{network} {compressor} {decode}", network=network, compressor=compressor, decoded=decode,
            step_ms=round(1e3 * best.iteration_s, 2), groups=len(best.groups), labels=best.details["labels"],
            plain=best.fusion.modes.count("plain"), cpu_s=round(cpu_s, 2),
            **{name: round(other_s[name] / best.iteration_s, 3) for name in BESIDE},
        )  # fmt: skip
    benchmark.pedantic(best_fusion, args=(profile, SolveOptions(threads=1)), rounds=1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("network", "compressor", "forward_ms", "most_ms"),
    [
        ("resnet50", "dgc", 32, 98.69), ("resnet50", "onebit", 32, 100.95), ("resnet101", "dgc", 60, 184.62),
        ("resnet101", "onebit", 60, 187.74), ("bert", "dgc", 33, 140.7), ("bert", "onebit", 33, 170.5),
    ],
)  # fmt: skip
def test_steps_that_a_capped_search_once_found(
    benchmark: Callable[..., BestFusion], network: str, compressor: str, forward_ms: float, most_ms: float
) -> None:
    """8 ranks at 2 GB/s, published overheads, decoding charged before the send; forward in whole milliseconds."""
    profile = replace(fusion_profile(network, compressor, affine=False), forward_s=1e-3 * forward_ms)
    asked = {"options": SolveOptions(threads=1), "decode": "before"}
    best = benchmark.pedantic(best_fusion, args=(profile,), kwargs=asked, rounds=1)  # type: ignore[attr-defined]
    assert best.bound_s == best.iteration_s
    assert 1e3 * best.iteration_s <= most_ms


@pytest.mark.parametrize("modes", [2, 3])
def test_concave_costs_of_many_gradients(benchmark: Callable[..., BestFusion], sized: Any, modes: int) -> None:
    """The hardest kind for labels with simple bounds: every size has another cost, and no grouping is clearly bad."""
    rng, count = np.random.default_rng(0), sized(3000, 300)
    sizes = np.geomspace(1e4, 1e9, 20)

    def concave(fixed_s: float, power: float) -> PointsCost:
        return PointsCost(tuple(zip(sizes.tolist(), (fixed_s * (sizes / 1e5) ** power).tolist(), strict=True)))

    offered = (
        plain_mode(concave(6e-4, 0.7)),
        Mode("first", concave(2e-4, 0.6), concave(1e-4, 0.5), concave(2e-5, 0.5)),
        Mode("second", concave(3e-4, 0.62), concave(4e-5, 0.55), concave(1e-5, 0.5)),
    )[:modes]
    profile = FusionProfile(
        "concave", 0.0, tuple(f"g{number}" for number in range(count)), rng.integers(1000, 10**6, count),
        rng.dirichlet(np.ones(count)) * 1e-4 * count, offered,
    )  # fmt: skip
    began_s = time.process_time()
    asked = {"options": SolveOptions(threads=1, time_limit_s=None)}
    best = benchmark.pedantic(best_fusion, args=(profile,), kwargs=asked, rounds=1)  # type: ignore[attr-defined]
    gap, cpu_s = 1 - best.bound_s / best.iteration_s, time.process_time() - began_s
    print(f"\n{count} concave gradients, {modes} modes: gap {100 * gap:.2f} %, CPU {cpu_s:.1f} s")
    assert gap <= (0.0 if modes == 2 else 0.01)


def test_costs_that_hide_nothing(benchmark: Callable[..., BestFusion]) -> None:
    """The hardest kind for the affine programme: tiny fixed costs, so that thousands of groups are worth a thought."""
    rng, count = np.random.default_rng(1), 1000
    profile = FusionProfile(
        "tiny fixed costs", 0.0, tuple(f"g{number}" for number in range(count)),
        rng.integers(1, 10**6, count), rng.uniform(0, 1e-3, count),
        (Mode("compressed", AffineCost(1e-7, 1e-9), AffineCost(1e-7, 1e-10)),),
    )  # fmt: skip
    _timed(benchmark, profile, "affine")
