"""Tables of what benchmarks find: printed at the end of a run, and kept as JSON and Markdown where asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["ResultTable", "ResultTables"]

Value = str | float | int | None


class ResultTable:
    """Rows under a title; each has a key, and a later row of the same key takes its place."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: dict[str, dict[str, Value]] = {}

    def add(self, key: str, **row: Value) -> None:
        """Add a row."""
        self.rows[key] = row

    def markdown(self) -> str:
        """The table, with `-` for what is not known."""
        columns = list(dict.fromkeys(column for row in self.rows.values() for column in row))
        heads = [column.replace("_", " ") for column in columns]
        lines = [heads, ["---"] * len(heads)]
        lines += [[_text(row.get(column)) for column in columns] for row in self.rows.values()]
        return f"{self.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


class ResultTables:
    """The tables of a run by name; with a folder, what earlier runs left there is kept, row by row."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._tables: dict[str, ResultTable] = {}

    def table(self, name: str, title: str) -> ResultTable:
        """The table of that name, with the rows of earlier runs."""
        if name not in self._tables:
            table = self._tables[name] = ResultTable(title)
            if self._folder is not None and (self._folder / f"{name}.json").exists():
                table.rows.update(json.loads((self._folder / f"{name}.json").read_text())["rows"])
        return self._tables[name]

    def write(self) -> None:
        """Write each table as JSON and as Markdown, if there is a folder."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, table in self._tables.items():
            record: dict[str, Any] = {"title": table.title, "rows": table.rows}
            (self._folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
            (self._folder / f"{name}.md").write_text(table.markdown())

    def __str__(self) -> str:
        return "\n".join(table.markdown() for table in self._tables.values() if table.rows)


def _text(value: Value) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,}"
