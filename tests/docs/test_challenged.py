"""What README and tutorials claim of their plans stands: every plan that they write is challenged.

It takes minutes to make and to challenge them; `.ci/run` has `.ci/challenge` do it for the README's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from challenged_pages import PAGES, challenged, plans_of


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_claim_of_a_page_is_refuted(page: Path, tmp_path: Path) -> None:
    found = plans_of(page, tmp_path)
    assert found, "the page writes a plan"
    for path in found:
        report = challenged(path)
        assert report.verdict != "refuted", report.text
