"""10,000 changed files for every reader: one line at most, nothing left behind, at most 2 s of processor time each.

`pytest tests/benchmarks/test_mutations.py -k topology` runs the formats whose names hold a word.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from read_cases import CASES, refusals

COUNT = 10_000
LIMIT_S = 2.0


@pytest.mark.parametrize("name", CASES)
def test_ten_thousand_changed_files(name: str, tmp_path: Path, benchmark: Any, sized: Any) -> None:
    count = sized(COUNT, 100)
    found = benchmark.pedantic(refusals, args=(name, tmp_path, 11, count, LIMIT_S), rounds=1)
    benchmark.extra_info["taken"] = found.count("")
    assert len(found) == count
    assert found.count("") > 0
