"""Weak scaling by replay, held to Table 1 of the paper: words of the busiest rank, latencies in turn."""

from __future__ import annotations

import pytest

from gapless.encodings.oktopk.commands.scaling import scale
from gapless.encodings.oktopk.question import ScalingQuestion
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.sparsity.index_sets import index_sets
from gapless.system import Session


@pytest.fixture(scope="module")
def rows() -> dict[tuple[int, str], dict[str, float]]:
    asked = ScalingQuestion("clustered:elements=20000,steps=1", ranks=(4, 8, 16), compute=1e-3, latency=0.0)
    found = scale(asked, Session(SolveOptions(), lambda _: None)).data["rows"]
    return {(row["ranks"], row["name"]): row for row in found}


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_words_and_latencies_are_those_of_table_1(rows: dict[tuple[int, str], dict[str, float]], ranks: int) -> None:
    count, levels = 200, ranks.bit_length() - 1
    of = {name: row for (number, name), row in rows.items() if number == ranks}
    assert of["TopkA"]["words"] == 2 * count * (ranks - 1) == of["TopkA"]["words_most"]
    assert of["dense"]["words"] == 2 * 20000 * (ranks - 1) // ranks
    assert of["gTopk"]["words"] == 2 * count * levels == of["gTopk"]["words_most"] / 2  # the root sends as many
    assert of["Gaussiank"]["words"] == 0.75 * of["TopkA"]["words"]
    assert of["TopkDSA"]["words_least"] <= of["TopkDSA"]["words"] <= of["TopkDSA"]["words_most"]
    assert of["plan"]["words_least"] <= of["plan"]["words"] <= of["plan"]["words_most"]
    latencies = {name: row["latencies"] for name, row in of.items()}
    assert latencies["dense"] == 2 * (ranks - 1)
    assert (latencies["TopkA"], latencies["gTopk"]) == (levels, 2 * levels)
    assert ranks - 1 <= latencies["plan"] <= of["plan"]["latencies_most"] == 2 * ranks + 2 * levels
    assert ranks - 1 + levels == latencies["TopkDSA"] <= of["TopkDSA"]["latencies_most"]


def test_sparse_allgathers_do_not_scale_and_plans_do(rows: dict[tuple[int, str], dict[str, float]]) -> None:
    times_s = {name: [rows[ranks, name]["time_s"] for ranks in (4, 8, 16)] for name in ("TopkA", "plan")}
    assert times_s["TopkA"][2] == pytest.approx(5 * times_s["TopkA"][0])
    assert times_s["plan"][2] < 1.6 * times_s["plan"][0]
    for (ranks, _), row in rows.items():
        assert row["step_s"] >= 1e-3
        assert row["efficiency"] == 1 if ranks == 4 else row["efficiency"] <= 1
    assert rows[16, "dense, overlapped"]["step_s"] < rows[16, "dense"]["step_s"]


def test_index_sets_without_values_are_refused() -> None:
    bare = index_sets([[[0, 1], [1, 2]]], 200)
    with pytest.raises(InputError, match="indices: must have values"):
        scale(ScalingQuestion(bare, ranks=(2,)), Session(SolveOptions(), lambda _: None))
