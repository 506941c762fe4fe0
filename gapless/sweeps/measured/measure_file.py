"""Measure files: which command to run with which settings, and what to keep of its JSON. TOML or JSON; version 1.

::

    format = "gapless.measure"
    version = 1
    command = "{python} search.py --kind {kind} --probes {probes} --seed {seed}"
    time_out_s = 60

    [metrics]
    throughput = { path = "queries_per_s", unit = "queries/s" }
    memory = { path = "memory.bytes", unit = "bytes" }

    [runs]
    first = 4
    most = 32
    budget = 200

    [[grid]]
    kind = "flat"
    probes = 0

    [[grid]]
    kind = "ivf"
    probes = [1, 4, 16]

Every combination of a grid's lists is a configuration. In the command, `{name}` is the configuration's value, `{seed}`
differs from repeat to repeat, `{python}` is the interpreter at work. No shell reads the command.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.record import Record, suggestion
from gapless.options import MOST_SECONDS
from gapless.question.recorded import file_digest
from gapless.sweeps.sweep_file import Value, toml_or_json
from gapless.units import parse_bytes, parse_seconds

__all__ = ["FORMAT", "VERSION", "Configuration", "MeasureFile", "Metric", "Runs", "read_measure_file"]

FORMAT, VERSION = "gapless.measure", 1

_MOST_CONFIGURATIONS = 500
_MOST_RUNS = 100_000
_HASH_DIGITS = 16
_FEWEST, _FIRST, _DOUBLED = 2, 4, 8
"""Repeats: fewer than two have no interval; the defaults of `first`, and of `most` as a multiple of it."""
_FEWEST_RUNS = 12
"""A model that says which configurations are worth a run has a few settings to learn from, and a few best to repeat."""
_OF_THE_RUN = ("seed", "python")
_PLACE = re.compile(r"\{(\w+)\}")
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


@dataclass(frozen=True)
class Metric:
    """A number in the JSON that the command prints, at `path` (`memory.peak`, `runs.0.time`).

    `unit`: "bytes" and "s" where the file's unit is one of sizes or times; a value is multiplied by `scale` then.
    """

    name: str
    path: str
    unit: str
    scale: float

    def of(self, data: object) -> float:
        """The number. Raises `InputError` where there is none."""
        found: Any = data
        for key in self.path.split("."):
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                raise InputError(f"metric {self.name!r}: the JSON has nothing at {self.path!r}; it lacks {key!r}")
        try:
            value = math.nan if isinstance(found, (bool, str)) else float(found) * self.scale
        except (TypeError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            shown = json.dumps(found)[:60]
            raise InputError(f"metric {self.name!r}: must be a finite number at {self.path!r}, got {shown}")
        return value


@dataclass(frozen=True)
class Runs:
    """How often to run: `first` times each configuration, one that is left at the end at most `most` times, and no
    more than `budget` runs in all; with a budget below the first runs of each, some of them, by a model.
    """

    first: int
    most: int
    budget: int

    @property
    def rounds(self) -> int:
        """How many rounds there can be: the repeats double from each to the next."""
        return 1 + math.ceil(math.log2(self.most / self.first))

    def repeats(self, number: int) -> int:
        """How many repeats a configuration has after that round, counted from 0, if it was in all of them."""
        return min(self.first << number, self.most)


@dataclass(frozen=True)
class Configuration:
    """One setting of the command. `values`: its fields. `words`: the command, with `{seed}` and `{python}` as yet.

    `hash`: of these words, the files that they name, the metrics, and the seed.
    """

    values: Mapping[str, Value]
    words: tuple[str, ...]
    hash: str

    @property
    def title(self) -> str:
        """What people call it."""
        return " ".join(f"{name}={_written(value)}" for name, value in self.values.items()) or "the command"

    def command(self, seed: int) -> list[str]:
        """The words to run with a seed."""
        return list(_filled(self.words, {"seed": str(seed), "python": sys.executable}))


@dataclass(frozen=True)
class MeasureFile:
    """What is measured. `seed`: of the first repeat; those after it count on. `confidence`: of what is ruled out."""

    configurations: tuple[Configuration, ...]
    metrics: tuple[Metric, ...]
    runs: Runs
    time_out_s: float
    seed: int
    confidence: float

    @property
    def goes_by_model(self) -> bool:
        """Whether the budget doesn't pay for the first runs of each, so that a model says which are worth one."""
        return self.runs.budget < self.runs.first * len(self.configurations)


def read_measure_file(path: str | Path) -> MeasureFile:
    """The content of a measure file. Raises `InputError` naming file, field, rule and value."""
    record = toml_or_json(path)
    record.of_format(FORMAT, VERSION)
    metrics, words = _metrics(record.record("metrics")), _words(record)
    seed = record.integer("seed", 0, 2**31 - 1, default=0)
    configurations = _configurations(record, words, metrics, seed)
    runs = _runs(record.record("runs", default=Record({}, f"{path}: runs")), len(configurations))
    time_out_s = record.number("time_out_s", default=600.0)
    if not 0 < time_out_s <= MOST_SECONDS:
        raise record.fail("time_out_s", f"a number > 0 and <= {MOST_SECONDS:g}", time_out_s)
    confidence = record.number("confidence", default=0.95)
    if not 0.5 <= confidence < 1:
        raise record.fail("confidence", "a number >= 0.5 and < 1", confidence)
    record.close()
    return MeasureFile(configurations, metrics, runs, time_out_s, seed, confidence)


def _words(record: Record) -> tuple[str, ...]:
    command = record.text("command")
    try:
        words = tuple(shlex.split(command))
    except ValueError:
        words = ()
    if not words or "\0" in command:
        raise record.fail("command", "a command as one types it, with quotation marks in pairs", command)
    return words


def _metrics(record: Record) -> tuple[Metric, ...]:
    found = []
    for name in record.names():
        if not _NAME.fullmatch(name):
            raise InputError(f"{record.where}: a metric's name must be letters, digits and _, got {name!r}")
        entry = record.record(name)
        unit = entry.text("unit", default="")
        found.append(Metric(name, entry.text("path"), *_scaled(unit)))
        entry.close()
    if not found:
        raise InputError(f"{record.where}: must name at least one metric, such as throughput = {{ path = 'rate' }}")
    return tuple(found)


def _scaled(unit: str) -> tuple[str, float]:
    """The unit that values are kept in, and what they are multiplied by: sizes are in bytes, times in seconds."""
    if unit in ("", "bytes"):
        return unit, 1.0
    for kept, parse in (("s", parse_seconds), ("bytes", parse_bytes)):
        try:
            return kept, float(parse(f"1{unit}", ""))
        except InputError:
            continue
    return unit, 1.0


def _runs(record: Record, configurations: int) -> Runs:
    first = record.integer("first", _FEWEST, _MOST_RUNS, default=_FIRST)
    most = record.integer("most", first, _MOST_RUNS, default=min(_DOUBLED * first, _MOST_RUNS))
    needed = configurations * first
    budget = record.integer("budget", 1, default=configurations * most)
    if budget < min(needed, _FEWEST_RUNS):
        rule = f">= {needed}, the first {first} runs of each of {configurations} configurations"
        by_model = f">= {_FEWEST_RUNS}, the fewest that a model learns from"
        raise record.fail("budget", rule if needed <= _FEWEST_RUNS else by_model, budget)
    record.close()
    return Runs(first, most, budget)


def _configurations(
    record: Record, words: tuple[str, ...], metrics: tuple[Metric, ...], seed: int
) -> tuple[Configuration, ...]:
    """Every combination of every grid; of two with one command, the first."""
    found: dict[str, Configuration] = {}
    digests: dict[str, str] = {}
    for grid in record.records("grid"):
        _check_used(grid, words)
        for values in _combinations(grid):
            configuration = _configuration(values, words, metrics, seed, digests)
            found.setdefault(configuration.hash, configuration)
            if len(found) > _MOST_CONFIGURATIONS:
                rule = f"at most {_MOST_CONFIGURATIONS} configurations"
                raise InputError(f"{record.where}: grid: must be {rule}, got more; leave some out")
    if not found:
        raise record.fail("grid", "a list of at least one grid ([[grid]] in TOML)", [])
    program = next(iter(found.values())).command(seed)[0]
    if shutil.which(program) is None:
        raise record.fail("command", "a program that can be run, with its arguments", program)
    return tuple(found.values())


def _configuration(
    values: dict[str, Value], words: tuple[str, ...], metrics: tuple[Metric, ...], seed: int, digests: dict[str, str]
) -> Configuration:
    """`digests`: of the files that were read before."""
    filled = tuple(_filled(words, {name: _written(value) for name, value in values.items()}))
    for word in filled:
        if word not in digests and os.path.isfile(word):
            digests[word] = file_digest(word)
    kept = [(metric.name, metric.path, metric.unit, metric.scale) for metric in metrics]
    content = json.dumps([filled, [digests.get(word) for word in filled], kept, seed])
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return Configuration(values, filled, digest)


def _check_used(grid: Record, words: tuple[str, ...]) -> None:
    """Every placeholder has a value, and every field a place."""
    placed = {name for word in words for name in _PLACE.findall(word)} - set(_OF_THE_RUN)
    for name in sorted(placed - set(grid.names())):
        hint = suggestion(name, grid.names()) or f"the grid has {', '.join(grid.names()) or 'no fields'}"
        raise InputError(f"{grid.where}: field {name!r} is missing: the command has {{{name}}}; {hint}")
    for name in grid.names():
        if name not in placed:
            hint = suggestion(name, placed) or "add it to the command"
            raise InputError(f"{grid.where}: field {name!r} is unknown: the command has no {{{name}}}; {hint}")


def _combinations(grid: Record) -> Iterator[dict[str, Value]]:
    axes = {name: _values(grid, name) for name in grid.names()}
    for combination in product(*axes.values()):
        yield dict(zip(axes, combination, strict=True))


def _values(grid: Record, name: str) -> list[Value]:
    found = grid.raw(name)
    values = found if isinstance(found, list) else [found]
    fine = [value for value in values if isinstance(value, (str, int, float)) and "\0" not in str(value)]
    is_finite = all(math.isfinite(value) for value in fine if isinstance(value, float))
    if not values or len(fine) < len(values) or not is_finite:
        raise grid.fail(name, "a text, a finite number, true or false, or a list of at least one", found)
    return fine


def _filled(words: tuple[str, ...], values: Mapping[str, str]) -> Iterator[str]:
    """The words with these values; other placeholders stay."""
    return (_PLACE.sub(lambda found: values.get(found[1], found[0]), word) for word in words)


def _written(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
