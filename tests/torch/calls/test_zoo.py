"""Models of all sorts train by plans in a plain loop, to eager's bits and within their budgets.

What isn't installed is skipped.
"""

from __future__ import annotations

import math
import re

import pytest
from doc_pages import ROOT

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from planned_zoo import DIFFERS, NAMES, counts, distance, is_close, row, rows

REFUSED = {
    "Graph, edges picked by data": "it looks into its data, by aten.nonzero.default",
}
"""The models that aren't captured, and the rule in the line of each."""


@pytest.mark.thorough("Llama")
@pytest.mark.parametrize("name", ["Two towers", "Llama"])
def test_training_has_eagers_bits_within_the_budget(name: str) -> None:
    found = row(name, steps=2, timed=1, limit_s=0.5)
    if str(found["captured"]).startswith("not installed"):
        pytest.skip(str(found["captured"]))
    assert (found["captured"], found["bit_equal"]) == ("yes", "yes")
    assert float(str(found["measured_KB"])) <= float(str(found["plan_KB"])) <= float(str(found["budget_KB"]))


def test_a_difference_is_accepted_only_from_models_known_for_it_and_only_of_last_bits() -> None:
    named = {"captured": "yes", "bit_equal": "head 1"}
    assert is_close({**named, "model": "Llama", "bit_equal": "yes", "off": 0.0})
    assert not is_close({**named, "model": "Llama", "off": 1e-9})
    for name, most in DIFFERS.items():
        assert is_close({**named, "model": name, "off": most / 2})
        assert not is_close({**named, "model": name, "off": 2 * most})


def test_how_far_off_is_a_share_of_the_norm() -> None:
    one = torch.tensor([3.0, 4.0])
    assert distance(one, one.clone()) == distance(None, None) == 0
    assert distance(one, torch.tensor([3.0, 4.5])) == pytest.approx(0.1)
    odd = (None, torch.zeros(3), torch.tensor([math.nan, 4.0]))
    assert all(distance(one, other) == math.inf for other in odd)
    assert distance(torch.zeros(2), one) == math.inf


def test_the_page_has_every_row_and_counts_them() -> None:
    text = (ROOT / "docs/planned-zoo.md").read_text(encoding="utf-8")
    cells = [
        [cell.strip() for cell in line.split("|")[1:4]] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)[2:]
    ]
    assert [model for model, *_ in cells] == list(NAMES)
    captured, equal = (sum(row[place] == "yes" for row in cells) for place in (1, 2))
    assert f"Of {len(cells)} rows {captured} are captured, {equal} of them with eager's bits" in text
    assert {model for model, kept, bits in cells if kept == "yes" != bits} <= set(DIFFERS)
    assert {model for model, kept, _ in cells if kept != "yes"} == set(REFUSED)


@pytest.mark.thorough
def test_the_whole_zoo() -> None:
    found = {str(each["model"]): each for each in rows(NAMES)}
    there = {name: each for name, each in found.items() if not str(each["captured"]).startswith("not installed")}
    for name, each in there.items():
        if name in REFUSED:
            assert REFUSED[name] in str(each["captured"])
        else:
            assert each["captured"] == "yes", each
            assert is_close(each), each
            peaks = [float(str(each[f"{what}_KB"])) for what in ("measured", "plan", "budget")]
            assert each["loss"] == "outside" or peaks == sorted(peaks), each
    assert counts(found.values())["captured"] >= 36
