"""What papers report beside what the pages print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gapless.errors import InputError
from gapless.installation import papers
from gapless.installation.evidence import Figure, Row, Table
from gapless.installation.papers import Comparison, comparisons, papers_page

ROOT = Path(__file__).resolve().parents[2]
ROWS = comparisons()
TABLE = Table("made-times", "made up", "docs/made.md", (Row("first", "x", (Figure("a.b", "1.5 ms"),)),), "now")


def test_every_paper_has_rows() -> None:
    assert {row.paper for row in ROWS if row.command} >= {
        "Accordion", "Bagpipe", "CHAI", "Cupcake", "MONeT", "Ok-Topk", "Optimus-CC", "TACCL",
        "Utility of gradient compression",
    }  # fmt: skip


def test_the_page_is_what_bench_makes() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert page == papers_page(), "`gapless bench --papers > docs/papers.md` makes it again"


@pytest.mark.parametrize("row", [row for row in ROWS if row.command], ids=lambda row: f"{row.paper}: {row.what}"[:60])
def test_every_number_of_ours_stands_on_the_page_that_its_command_makes_again(row: Comparison) -> None:
    page = (ROOT / row.page).read_text(encoding="utf-8")
    numbers = re.findall(r"\d[\d,.]*\d|\d", row.ours)
    assert numbers, "a figure of ours, or why there is none"
    assert [number for number in numbers if number not in page] == []


def test_a_row_without_a_command_says_why() -> None:
    assert [row for row in ROWS if not row.command and not row.ours] == []


def test_a_slot_takes_the_printed_figure() -> None:
    row = {"where": "Table 1", "what": "a", "theirs": "2 ms", "ours": "{a.b}", "table": "made-times", "row": "first"}
    found = papers._compared(row, "made", "Made", {"made-times": TABLE})  # noqa: SLF001
    assert (found.ours, found.command, found.page) == ("1.5 ms", "gapless bench made-times", "docs/made.md")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"table": "other"}, "no evidence is called 'other'"),
        ({"row": "second"}, "must have one figure 'a.b' in its row 'second', got 0"),
        ({"ours": "{c}"}, "must have one figure 'c' in its row 'first', got 0"),
    ],
)
def test_what_the_evidence_lacks_is_refused(change: dict[str, str], line: str) -> None:
    row = {"where": "Table 1", "what": "a", "theirs": "2 ms", "ours": "{a.b}", "table": "made-times", "row": "first"}
    with pytest.raises(InputError, match=line):
        papers._compared({**row, **change}, "made", "Made", {"made-times": TABLE})  # noqa: SLF001
