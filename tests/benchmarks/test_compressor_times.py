"""Encode and decode of ResNet-50's gradients on this machine, as `gapless profile compressors` measures them.

`pytest tests/benchmarks/test_compressor_times.py -s` prints the table. What is asserted is what each sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless import SolveOptions
from gapless.encodings.cupcake.commands.compressors import profile_compressors
from gapless.encodings.cupcake.question import CompressorsQuestion
from gapless.system import Session

RATIOS = {"signsgd": 32.0, "topk": 50.0, "ms-topk": 50.0, "rand-k": 100.0}
OTHERS = ("qsgd", "powersgd:4", "terngrad", "dgc", "atomo")


def test_compressors_send_what_they_say(sized: Callable[[Any, Any], Any]) -> None:
    names = sized((*RATIOS, *OTHERS), ("signsgd", "rand-k"))
    question = CompressorsQuestion(compressor=names, ranks=sized(8, 2), repeats=sized(3, 1))
    found = profile_compressors(question, Session(SolveOptions(), print))
    print(f"\n{found.text}")
    rows = found.data["rows"]
    assert isinstance(rows, list)
    for row in rows:
        if row["compressor"] in RATIOS:
            assert row["ratio"] == pytest.approx(RATIOS[row["compressor"]], rel=1e-3)
