"""Every table of results on a page names what makes it again: `gapless bench NAME`, in its own section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from doc_pages import ROOT, pages

from gapless.installation.evidence import evidence

NUMERIC = 0.3
"""From this share of cells that begin with a number on, a table holds results."""
FACTS = {
    ("docs/comparisons/sharding.md", "instance"): "what the contest and its winner published",
    ("docs/formats.md", "array"): "what a file holds",
    ("docs/mathematics.md", "allreduce"): "formulas",
    ("docs/topologies.md", "name"): "machines as their data sheets have them",
    ("docs/how-to/groups.md", "`--group`"): "ranks",
    ("docs/how-to/profile-a-machine.md", "flow"): "formulas",
    ("docs/how-to/stopping.md", "what happens"): "exit codes",
}
"""Tables of numbers that nobody measured, by page and the first head, and what they are."""

GATHERED = "docs/papers.md"
"""It holds figures of all other pages."""


@dataclass(frozen=True)
class Printed:
    """A table of a page. `section`: the text from its heading to the next."""

    page: str
    heads: tuple[str, ...]
    cells: tuple[str, ...]
    section: str

    @property
    def has_results(self) -> bool:
        """Whether many of its cells, row labels apart, begin with a number."""
        numbers = sum(re.match(r"\**[-+]?\d", cell) is not None for cell in self.cells)
        return numbers >= NUMERIC * len(self.cells) and (self.page, self.heads[0]) not in FACTS


def printed() -> Iterator[Printed]:
    """Every table of every page."""
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        text = re.sub(r"^```.*?^```$", _without_heads, page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
            for table in re.findall(r"(?:^ *\|.*\|\n)+", section, flags=re.MULTILINE):
                rows = [[cell.strip() for cell in line.strip().split("|")[1:-1]] for line in table.splitlines()]
                cells = [cell for row in rows[2:] for cell in row[1:] if cell]
                yield Printed(name, tuple(rows[0]), tuple(cells), section)


def _without_heads(block: re.Match[str]) -> str:
    """A block of code whose comments are no headings, and whose lines are no table."""
    return re.sub(r"^[#|]", "", block.group(), flags=re.MULTILINE)


RESULTS = [table for table in printed() if table.has_results]


def test_there_are_tables_of_results_and_of_facts() -> None:
    assert len(RESULTS) > 30
    assert len(list(printed())) > 1.5 * len(RESULTS)


@pytest.mark.parametrize("table", RESULTS, ids=lambda table: f"{table.page}: {' | '.join(table.heads)[:40]}")
def test_a_table_of_results_names_what_makes_it_again(table: Printed) -> None:
    known = {entry.name for entry in evidence() if table.page in (entry.page, GATHERED)}
    named = {word for words in re.findall(r"gapless\s+bench\s+([^`#]*)", table.section) for word in words.split()}
    rule = "its section must name the `gapless bench` table or the script that makes it, or FACTS say what it is"
    scripts = re.findall(r"`python (tests/support/\w+\.py)", table.section)
    is_made = known & named or any((ROOT / script).is_file() for script in scripts)
    assert is_made, f"{table.heads}: {rule}; of {table.page}, bench knows {', '.join(sorted(known)) or 'none'}"
