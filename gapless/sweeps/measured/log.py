"""The log of measurements, `measurements.jsonl`: a line for each run, added as it ends, so that a sweep can go on.

The first line says the format and the machine: measurements of two machines don't mix. A run that failed is not in it,
and is tried again.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import parse_record
from gapless.io.text_file import load_text
from gapless.sweeps.measured.measure_file import Configuration, Metric

__all__ = ["LOG", "Log"]

LOG = "measurements.jsonl"
FORMAT, VERSION = "gapless.measurements", 1


class Log:
    """The measurements in a folder. Raises `InputError` for a log that is none, or of another machine."""

    def __init__(self, folder: Path, metrics: tuple[Metric, ...]) -> None:
        self._path = folder / LOG
        self._metrics = [metric.name for metric in metrics]
        self._known: dict[tuple[str, int], NDArray[np.float64]] = {}
        self._size_bytes: int | None = None
        if os.path.exists(self._path):
            self._read()

    def known(self, configuration: Configuration, repeat: int) -> NDArray[np.float64] | None:
        """The metrics of an earlier run."""
        return self._known.get((configuration.hash, repeat))

    def add(self, configuration: Configuration, repeat: int, seed: int, values: NDArray[np.float64]) -> None:
        """Keep a run, at once."""
        if self._size_bytes is None:
            self._begin()
        line = {"hash": configuration.hash, "repeat": repeat, "seed": seed, "fields": dict(configuration.values)}
        metrics = dict(zip(self._metrics, values.tolist(), strict=True))
        try:
            with self._path.open("r+b") as file:
                file.seek(self._size_bytes or 0)
                file.truncate()  # half a line of a process that was killed
                file.write(json.dumps({**line, "metrics": metrics}).encode("utf-8", "surrogatepass") + b"\n")
                self._size_bytes = file.tell()
        except OSError as error:
            raise InputError(f"cannot write {self._path}: {error.strerror or error}") from None
        self._known[configuration.hash, repeat] = values

    def _begin(self) -> None:
        text = json.dumps({"format": FORMAT, "version": VERSION, "machine": platform.node()}) + "\n"
        write_text(self._path, text)
        self._size_bytes = len(text.encode())

    def _read(self) -> None:
        head, *lines = load_text(self._path).split("\n")
        record = parse_record(head, f"{self._path}: line 1")
        record.of_format(FORMAT, VERSION)
        machine = record.text("machine")
        if machine != platform.node():
            rule = "measurements of two machines don't mix; choose another folder"
            raise InputError(f"{self._path}: machine: is {machine!r}, and this one is {platform.node()!r}: {rule}")
        self._size_bytes = len(head.encode()) + 1
        for number, line in enumerate(lines[:-1], 2):  # what follows the last end of a line is half a line
            entry = parse_record(line, f"{self._path}: line {number}")
            metrics = entry.record("metrics")
            values = [float(metrics.number(name)) for name in self._metrics if name in metrics]
            if len(values) == len(self._metrics):
                self._known[entry.text("hash"), entry.integer("repeat", 0)] = np.array(values)
            self._size_bytes += len(line.encode()) + 1
