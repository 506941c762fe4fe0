"""What README and tutorials claim of their plans stands: every plan that they write is challenged.

The pages' own plans take minutes to make and to challenge (`.ci/challenge` does it, too); by default those of the
README's first commands are, with little work.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from challenged_pages import PAGES, challenged, plans_of
from doc_pages import ROOT, blocks, commands

from gapless.cli.main import main

FIRST = ("order.json", "plan.json")
"""Of the README: what its first commands write."""


@pytest.mark.parametrize("name", FIRST)
def test_no_claim_of_the_readmes_first_plans_is_refuted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    words = next(
        words for block in found if block.language == "sh" for words in commands(block)
        if words[:2] == ["gapless", "solve"] and name in words
    )  # fmt: skip
    assert main([*words[1:], "--quiet"]) == 0
    report = challenged(tmp_path / name, work=2)
    assert report.verdict != "refuted", report.text


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_claim_of_a_page_is_refuted(page: Path, tmp_path: Path) -> None:
    found = plans_of(page, tmp_path)
    assert found, "the page writes a plan"
    for path in found:
        report = challenged(path)
        assert report.verdict != "refuted", report.text
