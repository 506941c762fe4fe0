"""Files that are changed at random: every reader takes them, or refuses them in one line and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import share
from read_cases import CASES, refusals

COUNT = max(24, share(480))
"""Of each format: 10,000 of all formats with --thorough. tests/benchmarks has 10,000 of each."""


@pytest.mark.thorough("plan-", "mscclpp", "sweep-toml")
@pytest.mark.parametrize("name", CASES)
def test_a_changed_file_is_taken_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    found = refusals(name, tmp_path, 7, COUNT)
    assert 0 < found.count("") < COUNT
