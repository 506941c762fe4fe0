"""What a step takes without any saving (Table 4.2) and how large the encodings are (Table 4.5).

`pytest tests/benchmarks/test_monet_sizes.py` prints both tables of docs/monet.md.
"""

from __future__ import annotations

from typing import Any

import pytest
from encoding_sizes import comparison
from measured_monet import FULL, measured
from result_tables import ResultTables

from gapless.profiles.training import networks
from gapless.profiles.training.baseline import peak_without_saving_bytes

TABLE_4_2_GIB = {
    ("resnet50", 184): 15.1, ("googlenet", 320): 14.9, ("unet", 11): 14.3, ("vgg16", 176): 14.1,
    ("mobilenet_v2", 272): 14.5, ("mobilenet_v2", 256): 14.5,
}  # fmt: skip


@pytest.mark.parametrize(("name", "batch"), TABLE_4_2_GIB)
@pytest.mark.usefixtures("keep_tables")
def test_memory_of_a_step_without_any_saving(name: str, batch: int, benchmark: Any, tables: ResultTables) -> None:
    graph = networks.build(name, batch)
    gib = benchmark.pedantic(peak_without_saving_bytes, args=(graph,)) / 2**30
    table_gib = TABLE_4_2_GIB[name, batch]
    tables.table("monet_saving", "Memory of a step without any saving (Table 4.2)").add(
        f"{name} {batch}", network=name, batch=batch, GiB=round(gib, 2), table=table_gib,
        difference=f"{100 * (gib / table_gib - 1):+.1f} %",
    )  # fmt: skip
    assert 0.89 < gib / table_gib < 1


@pytest.mark.parametrize("name", ["resnet50_184", "mobilenet_v2_272", "un_11", "vgg16_176"])
@pytest.mark.usefixtures("keep_tables")
def test_rows_and_columns_of_the_encodings(name: str, benchmark: Any, tables: ResultTables) -> None:
    graph = measured(f"{name}_{FULL}")
    lines = benchmark.pedantic(comparison, args=([graph],))
    sizes = {line.encoding: line.ours for line in lines}
    cells = {encoding: f"{size.rows:,} x {size.columns:,}" for encoding, size in sizes.items()}
    tables.table("monet_encodings", "Rows x columns at 10 GiB (Table 4.5)").add(name, model=name, **cells)
    assert sizes["monet-noop"].rows < sizes["monet"].rows < sizes["checkmate"].rows
    assert all(
        sizes[line.encoding].rows < line.thesis[0] for line in lines if line.thesis and line.encoding != "checkmate"
    )
