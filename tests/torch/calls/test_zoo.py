"""Models of all sorts train by plans in a plain loop, to eager's bits and within their budgets.

What isn't installed is skipped.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from planned_zoo import DIFFERS, NAMES, counts, row, rows

REFUSED = {
    "Graph, edges picked by data": "it looks into its data, by aten.nonzero.default",
}
"""The models that aren't captured, and the rule in the line of each."""


@pytest.mark.parametrize("name", ["Two towers", "Llama"])
def test_training_has_eagers_bits_within_the_budget(name: str) -> None:
    found = row(name, steps=2, timed=1, limit_s=0.5)
    if str(found["captured"]).startswith("not installed"):
        pytest.skip(str(found["captured"]))
    assert (found["captured"], found["bit_equal"]) == ("yes", "yes")
    assert float(str(found["measured_KB"])) <= float(str(found["plan_KB"])) <= float(str(found["budget_KB"]))


@pytest.mark.thorough
def test_the_whole_zoo() -> None:
    found = {str(each["model"]): each for each in rows(NAMES)}
    there = {name: each for name, each in found.items() if not str(each["captured"]).startswith("not installed")}
    for name, each in there.items():
        if name in REFUSED:
            assert REFUSED[name] in str(each["captured"])
        else:
            assert each["captured"] == "yes", each
            assert each["bit_equal"] == "yes" or name in DIFFERS, each
            peaks = [float(str(each[f"{what}_KB"])) for what in ("measured", "plan", "budget")]
            assert each["loss"] == "outside" or peaks == sorted(peaks), each
    assert counts(found.values())["captured"] >= 36
