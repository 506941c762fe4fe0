"""391 gradients: BERT large in twelve settings, each within 0.01 % of a bound.

8 ranks at 10, 25 and 100 Gb/s, DGC or OneBit beside plain gradients, decoded after or before. `pytest
tests/benchmarks/test_cupcake_large.py` prints the table of docs/cupcake.md.
"""

from __future__ import annotations

import time
from itertools import product

import pytest
from result_tables import ResultTables

from gapless.encodings.cupcake.problem import problem
from gapless.encodings.cupcake.solve import best_fusion
from gapless.options import SolveOptions
from gapless.profiles.gradients.fusion import DECODES

GBPS, COMPRESSORS, GAP = (10, 25, 100), ("dgc", "onebit"), 1e-4
TITLE = "BERT large, 391 gradients: what is proven, and in how much processor time"


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.shortest("100")
@pytest.mark.parametrize(("gbps", "compressor", "decode"), [*product(GBPS, COMPRESSORS, DECODES)])
def test_every_setting_of_bert_large_is_proven(gbps: int, compressor: str, decode: str, tables: ResultTables) -> None:
    asked = problem(profile="bert-large", modes=("plain", compressor), ranks=8, bandwidth=1e9 / 8 * gbps, decode=decode)
    began_s = time.process_time()
    best = best_fusion(asked.profile, SolveOptions(threads=1, gap=GAP), modes=asked.modes, decode=decode)
    cpu_s = time.process_time() - began_s
    assert best.bound_s is not None
    gap = 1 - best.bound_s / best.iteration_s
    assert gap <= GAP
    tables.table("cupcake_large", TITLE).add(
        f"{gbps} Gb/s, {compressor}, {decode}", gbps=gbps, compressor=compressor, decoded=decode,
        step_ms=round(1e3 * best.iteration_s, 3), bound_ms=round(1e3 * best.bound_s, 3),
        gap_percent=round(100 * gap, 4), groups=len(best.groups), labels=best.details["labels"], cpu_s=round(cpu_s, 1),
    )  # fmt: skip
