"""Evidence: the printed tables that a command can make again, and whether it still makes them.

A system's folder, and that of measured sweeps, may hold `evidence.toml`: tables by name, with the page that prints
each, and rows of a command and the figures that it gave; or a benchmark of the checkout, which asserts its answers
itself and writes its rows. `rerun` runs a command in a process of its own and holds what it says against the page.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from gapless.errors import InputError
from gapless.installation.doctor import declared_extras, extras_for
from gapless.installation.extras import install_line
from gapless.system import find_system, system_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Figure", "Found", "Row", "Size", "Table", "evidence", "rerun"]

Size = Literal["minute", "hour"]
"""What a row takes on two cores: `minute` up to some ten seconds, `hour` some minutes."""

_PATIENCE_S: dict[Size, float] = {"minute": 600.0, "hour": 3600.0}
"""When a command is given up: ten times and more what it takes, since a machine may be busy."""
_LOOK_S = 0.2
"""How often it is looked whether somebody wants to stop."""
_CPU_TIMES = ("cpu_s", "cpu_ms")
"""Figures that are processor times, of commands and of benchmarks."""
_TIME_NOISE = 2.0
"""Processor times that differ by less are called the same: machines differ, and so do runs."""

_SCALES = {"": 1.0, "%": 0.01, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "x": 1.0}
_OTHERS = {"sweep": "gapless.sweeps.measured"}
"""Packages of no system that have tables, by the first word of their names."""
_TIMES = "times"
"""The table that any benchmark has: the median processor time of each test."""

_PRINTED = re.compile(r"(-?[0-9,]+(?:\.([0-9]+))?) ?([A-Za-z%]*)")
_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?(?:e-?[0-9]+)?")


@dataclass(frozen=True)
class Figure:
    """A number of a page. `path`: the field of the command's JSON object, with points between levels; or the column of
    a benchmark's row, whose first number it is, with `.1` the second.

    `printed`: as the page has it, such as "925.2 us"; `value` in seconds, bytes or as it stands, and `rounding`: half
    of its last digit. `noise`: the share by which an answer may differ that a time limit or a measurement decides.
    """

    path: str
    printed: str
    noise: float = 0.0

    def __post_init__(self) -> None:
        self._parts()

    def _parts(self) -> tuple[str, str, float]:
        found = _PRINTED.fullmatch(self.printed)
        if found is None or found.group(3) not in _SCALES:
            units = ", ".join(filter(None, _SCALES))
            raise InputError(f"figure {self.path}: must be a number, with a unit of {units}, got {self.printed!r}")
        return found.group(1).replace(",", ""), found.group(2) or "", _SCALES[found.group(3)]

    @property
    def value(self) -> float:
        """The printed number in seconds, bytes, or as it stands; a percentage as a share."""
        number, _, scale = self._parts()
        return float(number) * scale

    @property
    def scale(self) -> float:
        """How many seconds, bytes or ones the printed unit is."""
        return self._parts()[2]

    @property
    def rounding(self) -> float:
        """Half of the last printed digit."""
        _, decimals, scale = self._parts()
        return 0.5 * 10.0 ** -len(decimals) * scale

    def agrees(self, found: float) -> bool:
        """Whether a command's answer is what is printed, but for rounding and noise."""
        if self.path in _CPU_TIMES:
            return self.value / _TIME_NOISE <= found + self.rounding and found <= self.value * _TIME_NOISE
        return abs(found - self.value) <= self.rounding * (1 + 1e-6) + self.noise * abs(self.value)

    def text(self, found: float) -> str:
        """An answer as this figure is printed."""
        _, decimals, scale = self._parts()
        unit = self.printed.partition(" ")[2]
        return f"{found / scale:,.{len(decimals)}f}{' ' + unit if unit else ''}"


@dataclass(frozen=True)
class Row:
    """A row of a table: what makes it, as a shell would have it, and what is printed.

    `before`: commands that make files for it, in the folder where it runs. `written`: of a benchmark, the table and the
    row that it writes for it; a benchmark's row without figures says that its assertions hold.
    """

    label: str
    command: str
    figures: tuple[Figure, ...]
    size: Size = "minute"
    before: tuple[str, ...] = ()
    written: tuple[str, str] = ("", "")

    @property
    def is_benchmark(self) -> bool:
        """Whether it takes a checkout."""
        return self.command.startswith("pytest ")


@dataclass(frozen=True)
class Table:
    """A table of a page. `measured`: when and on what machine the printed figures were found. `needs`: foreign data
    that they need, and where those are; empty where there is nothing to get. `needs_gpu`: whether PyTorch must see one.
    """

    name: str
    title: str
    page: str
    rows: tuple[Row, ...]
    measured: str
    needs: str = ""
    needs_gpu: bool = False


@dataclass(frozen=True)
class Found:
    """What a row's command gave now. `values`: by figure, in its order; None where `error` says why there is none, or
    `left_out` why it was not run.
    """

    row: Row
    values: tuple[float, ...] | None = None
    error: str = ""
    left_out: str = ""

    @property
    def differs(self) -> bool:
        """Whether something is not as printed."""
        if self.values is None:
            return not self.left_out
        return not all(figure.agrees(value) for figure, value in zip(self.row.figures, self.values, strict=True))

    @property
    def data(self) -> dict[str, object]:
        """Plain values for programs."""
        values = self.values or (None,) * len(self.row.figures)
        figures = [
            {"figure": figure.path, "printed": figure.printed, "value": figure.value, "found": value,
             "agrees": value is not None and figure.agrees(value)}
            for figure, value in zip(self.row.figures, values, strict=True)
        ]  # fmt: skip
        return {
            "row": self.row.label, "command": self.row.command, "figures": figures, "differs": self.differs,
            "error": self.error, "left_out": self.left_out,
        }  # fmt: skip


def evidence() -> tuple[Table, ...]:
    """Every table of every system that is there, by the systems' names, and of what belongs to none."""
    packages = {name: find_system(name).package for name in system_names()} | _OTHERS
    tables: list[Table] = []
    for name, package in packages.items():
        file = files(package) / "evidence.toml" if package else None
        if file is not None and file.is_file():
            tables += _read(tomllib.loads(file.read_text(encoding="utf-8")), name)
    return tuple(tables)


def _read(record: Mapping[str, Any], system: str) -> list[Table]:
    """The tables of a system's file, which ships with it."""
    return [
        Table(
            f"{system}-{name}", table["title"], table["page"], tuple(_rows(table)), table["measured"],
            table.get("needs", ""), table.get("needs_gpu", False),
        )
        for name, table in record.items()
    ]  # fmt: skip


def _rows(table: Mapping[str, Any]) -> Iterator[Row]:
    """A table's rows: the command of each is the table's with its own arguments, or the benchmark that writes them."""
    noise = table.get("noise", {})
    for row in table.get("rows", ({"label": table["title"], "figures": {}},)):
        figures = tuple(Figure(path, printed, noise.get(path, 0.0)) for path, printed in row["figures"].items())
        if "benchmark" in table:
            written = (row.get("result", table.get("result", "")), row.get("key", row["label"]))
            yield Row(row["label"], f"pytest {table['benchmark']}", figures, table.get("size", "hour"), written=written)
        else:
            *before, command = (
                f"gapless {line.replace('{}', row.get('command', ''))}"
                for line in (*table.get("before", ()), table["command"])
            )
            size = row.get("size", table.get("size", "minute"))
            yield Row(row["label"], command, figures, size, tuple(before))


def rerun(rows: Sequence[Row], stop: threading.Event) -> list[Found] | None:
    """Run the command of these rows, which they share, and hold each against its answer; None once `stop` is set."""
    with tempfile.TemporaryDirectory() as folder:
        answer = _benchmark(rows[0], folder, stop) if rows[0].is_benchmark else _command(rows[0], folder, stop)
    return None if answer is None else [_held(row, answer) for row in rows]


@dataclass(frozen=True)
class _Answer:
    """What a command said as plain values, or why there is nothing."""

    record: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    left_out: str = ""


def _command(row: Row, folder: str, stop: threading.Event) -> _Answer | None:
    """The JSON object of a row's command, after those that make files for it; left out where an extra is missing."""
    commands = (*row.before, f"{row.command} --json")
    if lacking := _lacking(commands):
        return _Answer(left_out=f"it needs what is not installed: {'; '.join(map(install_line, lacking))}")
    ended: _Ended | str | None = None
    for command in commands:
        ended = _run([sys.executable, "-m", *shlex.split(command)], folder, _PATIENCE_S[row.size], stop, _ANSWERS)
        if not isinstance(ended, _Ended):
            return None if ended is None else _Answer(error=ended)
    assert isinstance(ended, _Ended)
    lines = ended.out.strip().splitlines() or [""]
    return _Answer({**json.loads(lines[-1]), "cpu_s": ended.cpu_s})


def _lacking(commands: Sequence[str]) -> list[str]:
    """The extras that commands need and that are declared, but not whole here."""
    extras = {extra.name: extra for extra in declared_extras()}
    names = {name for command in commands for name in extras_for(shlex.split(command)[1:])}
    return sorted(name for name in names if name in extras and not extras[name].is_complete)


def _benchmark(row: Row, folder: str, stop: threading.Event) -> _Answer | None:
    """The tables that a benchmark wrote: rows by table and key."""
    if not (_root() / "tests" / "benchmarks").is_dir() or find_spec("pytest_benchmark") is None:
        return _Answer(left_out="benchmarks need a checkout of the sources and `pip install -e '.[test]'`")
    times, tables = Path(folder) / "times.json", Path(folder) / "tables"
    options = ["--benchmark-disable"]
    if row.written[0] == _TIMES:
        options = ["--benchmark-only", "--benchmark-timer=time.process_time", "--benchmark-json", str(times)]
    elif row.written[0]:
        options += ["--tables", str(tables)]
    ended = _run([sys.executable, "-m", *shlex.split(row.command), *options], str(_root()), _PATIENCE_S[row.size], stop)
    if not isinstance(ended, _Ended):
        return None if ended is None else _Answer(error=ended)
    said = (ended.out.strip().splitlines() or [""])[-1]
    if " passed" not in said:
        return _Answer(left_out=f"the benchmark says {said.strip('= ')}")
    written = {file.stem: json.loads(file.read_text())["rows"] for file in tables.glob("*.json")}
    if times.is_file():
        timed = json.loads(times.read_text())["benchmarks"]
        written[_TIMES] = {each["name"]: {"cpu_s": each["stats"]["median"]} for each in timed}
    return _Answer(written)


def _held(row: Row, answer: _Answer) -> Found:
    """A row beside an answer."""
    if answer.error or answer.left_out:
        return Found(row, error=answer.error, left_out=answer.left_out)
    try:
        if not row.is_benchmark:
            return Found(row, tuple(_at(answer.record, figure.path) for figure in row.figures))
        record = answer.record[row.written[0]][row.written[1]] if row.figures else {}
        return Found(row, tuple(_cell(record, figure) for figure in row.figures))
    except (KeyError, IndexError, TypeError, ValueError):
        return Found(row, error=f"its answer lacks one of {', '.join(figure.path for figure in row.figures)}")


def _root() -> Path:
    """Where gapless is, which commands are to take too."""
    return Path(str(files("gapless"))).absolute().parent


_ANSWERS = (0, 3)
"""Exit codes of commands that answer: a proof that there is no plan is an answer."""
_FAILED_TESTS = ("FAILED ", "ERROR ")
"""How a benchmark's summary begins what failed, and why."""


@dataclass(frozen=True)
class _Ended:
    """What a command printed, and its processor seconds."""

    out: str
    cpu_s: float


def _run(
    command: Sequence[str], folder: str, patience_s: float, stop: threading.Event, answers: Sequence[int] = (0,)
) -> _Ended | str | None:  # fmt: skip
    """How a command ended, or why it has no answer; None where it was stopped. `answers`: exit codes that have one."""
    paths = [str(_root()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "400"}  # room for reasons
    before = os.times()
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        waited_s = 0.0
        while True:
            try:
                out, err = process.communicate(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                waited_s += _LOOK_S
                if stop.is_set() or waited_s > patience_s:
                    process.kill()
                    process.communicate()
                    return None if stop.is_set() else f"given up after {patience_s:g} s"
    if stop.is_set():  # a signal to the terminal's processes may have ended it with less than it was asked
        return None
    if process.returncode not in answers:
        lines = (err.strip() or out.strip() or "no message").splitlines()
        failed = [line for line in lines if line.startswith(_FAILED_TESTS)]
        return f"exit code {process.returncode}: {'; '.join(failed or lines[-1:])}"
    after = os.times()
    return _Ended(out, sum(after[2:4]) - sum(before[2:4]))  # of children, user and system


def _at(answer: Any, path: str) -> float:
    """The number at a path of an answer: names and positions, with points between."""
    for part in path.split("."):
        answer = answer[int(part)] if isinstance(answer, list) else answer[part]
    return float(answer)


def _cell(record: Mapping[str, object], figure: Figure) -> float:
    """The number in a cell of a benchmark's row: seconds if the column's name ends so, else as the page prints it."""
    column, _, place = figure.path.rpartition(".") if figure.path[-2:-1] == "." else (figure.path, "", "0")
    numbers = _NUMBER.findall(str(record[column]))
    scale = 1.0 if column.endswith("_s") else figure.scale
    return float(numbers[int(place)].replace(",", "")) * scale
