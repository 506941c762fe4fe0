"""Tables of sweeps, as summary.csv and summary.json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapless.io.atomic import write_text
from gapless.io.record import load_record
from gapless.sweeps.results import Row, row_from

__all__ = ["SUMMARY_JSON", "csv_text", "read_summary", "table_files", "write_summary", "write_table"]

FORMAT, VERSION = "gapless.sweep-summary", 1
SUMMARY_CSV, SUMMARY_JSON = "summary.csv", "summary.json"


def write_table(folder: Path, columns: Sequence[str], lines: Iterable[Mapping[str, object]], data: Any) -> None:
    """Write lines of plain values as the CSV, with an empty cell for None, and the data as the JSON."""
    write_text(folder / SUMMARY_CSV, csv_text(columns, lines))
    write_text(folder / SUMMARY_JSON, json.dumps(data, allow_nan=False, indent=1) + "\n")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """The rows under these columns as CSV, with a line of titles; None, and what a row lacks, is an empty cell."""
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def table_files(folder: Path) -> dict[str, str]:
    """A sweep's folder and the files of its table, for programs."""
    return {"folder": str(folder), "csv": str(folder / SUMMARY_CSV), "json": str(folder / SUMMARY_JSON)}


def write_summary(folder: Path, rows: Sequence[Row]) -> None:
    """Write the table of questions; in the CSV, what is nested has names such as fields.batch and details.overhead."""
    flat = [_flat(row.data) for row in rows]
    columns = dict.fromkeys(name for row in flat for name in row)
    nested = [name for name in columns if "." in name]
    fields = [name for name in nested if name.startswith("fields.")]
    others = [name for name in columns if name not in nested]
    order = [*others[:2], *fields, *others[2:], *(name for name in nested if name not in fields)]
    write_table(folder, order, flat, {"format": FORMAT, "version": VERSION, "rows": [row.data for row in rows]})


def _flat(data: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": entry for inner, entry in value.items()}
        elif name != "swept":
            flat[name] = value
    return flat


def read_summary(path: str | Path) -> list[Row]:
    """The rows of a summary.json. Raises `InputError` for a file that is none."""
    record = load_record(path)
    record.of_format(FORMAT, VERSION)
    rows = [row_from(entry) for entry in record.records("rows")]
    if not rows:
        raise record.fail("rows", "a list of at least one row", [])
    return rows
