"""ALLTOALLV of Zipf-skewed experts on 64 GPUs, beside a padded ALLTOALL and one of as many bytes, alike for all pairs.

Run with `pytest tests/benchmarks/test_taccl_unequal.py --tables FOLDER`.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray
from result_tables import ResultTables

import gapless

EXPERTS, CHOSEN, TOKEN_BYTES, RANKS = 256, 8, 7168, 64
TITLE = "Zipf-skewed experts on dgx-h100 x 8: ALLTOALLV beside a padded ALLTOALL"


def loads(exponent: float, tokens: int) -> NDArray[np.int64]:
    """Tokens by rank and expert; how often experts are chosen falls with their rank in a random order."""
    chance = np.random.default_rng(1)
    weight = chance.permutation(1 / np.arange(1, EXPERTS + 1) ** exponent)
    return np.stack([chance.multinomial(tokens * CHOSEN, weight / weight.sum()) for _ in range(RANKS)])


@pytest.mark.parametrize("tokens", [512, 4096])
@pytest.mark.parametrize("exponent", [0.5, 1.0])
@pytest.mark.usefixtures("keep_tables")
def test_it_is_near_its_bound_and_ahead_of_padding(exponent: float, tokens: int, tables: ResultTables) -> None:
    begin_s = time.process_time()
    plan = gapless.taccl.solve(
        "dgx-h100", nodes=8, collective="alltoallv", expert_loads=loads(exponent, tokens),
        expert_token_bytes=TOKEN_BYTES,
    )  # fmt: skip
    cpu_s = time.process_time() - begin_s
    sent = np.array(plan.plan.problem["shares_bytes"])
    np.fill_diagonal(sent, 0)
    sizes = {"padded": int(sent.max()) * RANKS, "even": int(sent.sum()) // (RANKS - 1)}
    others = {
        name: gapless.taccl.solve("dgx-h100", nodes=8, collective="alltoall", size=size) for name, size in sizes.items()
    }
    ends_s = {name: other.data["makespan_s"] for name, other in others.items()}
    assert plan.valid
    assert plan.data["ratio"] <= 1.08
    assert plan.data["makespan_s"] < ends_s["padded"]
    tables.table("taccl_unequal", TITLE).add(
        f"{exponent} {tokens}",
        s=exponent,
        tokens_a_rank=tokens,
        largest_by_mean_pair=f"{sent.max() * RANKS * (RANKS - 1) / sent.sum():.1f}",
        alltoallv_us=f"{1e6 * plan.data['makespan_s']:,.0f}",
        by_bound=f"{plan.data['ratio']:.3f}",
        cpu_s=f"{cpu_s:.1f}",
        padded_us=f"{1e6 * ends_s['padded']:,.0f}",
        even_us=f"{1e6 * ends_s['even']:,.0f}",
    )
