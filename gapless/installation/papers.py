"""Papers against us: what the papers print, what we print, and the command that makes ours again.

A system's folder may hold `papers.toml`: rows of a paper's table or figure, the paper's value, and ours, whose numbers
are those of a table of `evidence.toml`, so that a number is said once. `papers_page` makes the page of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

from gapless.errors import InputError
from gapless.installation.evidence import Figure, Row, Table, evidence
from gapless.system import find_system, system_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Comparison", "comparisons", "papers_page"]

_SLOT = re.compile(r"\{([^{}]+)\}")

_HEAD = """\
# Papers against us

Look up what a paper reports, what gapless makes of the same question on CPUs, and why they differ.
`gapless bench --papers` makes this page of other pages' tables. A row's own command makes its figures again
([how](how-to/evidence.md)).

Most papers measured clusters of GPUs. Here times are of the replay, or of processes on two cores, as the page of the
system says. A dash is where a paper has no such figure.
"""


@dataclass(frozen=True)
class Comparison:
    """A value of a paper beside ours.

    `system`: whose folder has it; `paper`: its title as a heading; `where`: its table, figure or section; `theirs` and
    `ours`: as printed. `command` makes ours again, `page` prints it. `why`: why they differ, or what ours leaves out;
    empty where they agree. Without a command ours is why there is none.
    """

    system: str
    paper: str
    where: str
    what: str
    theirs: str
    ours: str
    command: str = ""
    page: str = ""
    why: str = ""


def comparisons() -> tuple[Comparison, ...]:
    """All of them: systems by name, rows as their files have them.

    Raises `InputError` where a row names a table, a row or a figure that the evidence lacks.
    """
    tables = {table.name: table for table in evidence()}
    found: list[Comparison] = []
    for name in system_names():
        package = find_system(name).package
        file = files(package) / "papers.toml" if package else None
        if file is not None and file.is_file():
            record = tomllib.loads(file.read_text(encoding="utf-8"))
            found += [_compared(row, name, paper, tables) for paper, rows in record.items() for row in rows]
    return tuple(found)


def _compared(row: Mapping[str, str], system: str, paper: str, tables: Mapping[str, Table]) -> Comparison:
    """A row of a file, with its figures filled in."""
    place = f"{system}: {paper}: {row['where']}, {row['what']}"
    texts = {key: row.get(key, "") for key in ("where", "what", "theirs", "why")}
    if "table" not in row:
        return Comparison(system, paper, ours=row["ours"], **texts)
    if row["table"] not in tables:
        raise InputError(f"{place}: no evidence is called {row['table']!r}; `gapless bench --list` has all")
    table = tables[row["table"]]
    ours = _SLOT.sub(lambda slot: _printed(table, row.get("row", ""), slot.group(1), place), row["ours"])
    size = "" if any(row.size == "minute" for row in table.rows) else " --hour"
    return Comparison(system, paper, ours=ours, command=f"gapless bench {table.name}{size}", page=table.page, **texts)


def _printed(table: Table, label: str, slot: str, place: str) -> str:
    """The figure of a row's slot: `path` in the row `label`, or `other label: path`."""
    other, _, path = slot.rpartition(": ")
    rows = [row for row in table.rows if row.label == (other or label)]
    found = {figure.printed for row in rows for figure in _named(row, path)}
    if len(found) != 1:
        raise InputError(
            f"{place}: {table.name} must have one figure {path!r} in its row {other or label!r}, got {len(found)}"
        )
    return found.pop()


def _named(row: Row, path: str) -> Iterator[Figure]:
    return (figure for figure in row.figures if figure.path == path)


def papers_page() -> str:
    """The comparisons as a page of Markdown: a section a paper, a table of what can be had, a list of what can't."""
    papers: dict[str, list[Comparison]] = {}
    for each in comparisons():
        papers.setdefault(each.paper, []).append(each)
    parts = [_HEAD.rstrip("\n"), *(part for paper, rows in papers.items() for part in _section(paper, rows))]
    return "\n\n".join(parts) + "\n"


def _section(paper: str, rows: list[Comparison]) -> Iterator[str]:
    yield f"## {paper}"
    yield f"More is on the page of [{rows[0].system}]({rows[0].system}.md)."
    lines = [
        f"| {row.where} | {row.what} | {row.theirs} | {row.ours} | `{row.command}` | {row.why} |"
        for row in rows
        if row.command
    ]
    if lines:
        yield "\n".join(
            ["| there | what | paper | gapless | again | why they differ |", "|---|---|---|---|---|---|", *lines]
        )
    missing = [f"- {row.where}, {row.what} ({row.theirs}): {row.ours}." for row in rows if not row.command]
    if missing:
        yield "\n".join(["Not to be had here:", "", *missing])
