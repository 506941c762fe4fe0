"""The answer to a question by measurements, and its table: summary.csv and summary.json."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from gapless.sweeps.measured.measure_file import MeasureFile
from gapless.sweeps.measured.question import Question
from gapless.sweeps.measured.race import Race
from gapless.sweeps.measured.verdict import Verdict
from gapless.sweeps.summary import write_table
from gapless.sweeps.sweep_file import Value

__all__ = ["CHOSEN", "FORMAT", "LEFT", "VERSION", "WAITING", "Answer", "AnswerRow", "write_answer"]

FORMAT, VERSION = "gapless.measure-summary", 1

CHOSEN, LEFT, WAITING = "chosen", "not ruled out", "not measured"
"""What a configuration is that is not out."""


class AnswerRow(TypedDict):
    """A configuration as files have it. `metrics`: as `Answer` measured them, the mean and the ends of its interval;
    `predicted`: what the model expects where one was asked, likewise.
    """

    hash: str
    fields: dict[str, Value]
    standing: str
    repeats: int
    metrics: dict[str, dict[str, float]]
    predicted: dict[str, dict[str, float]]
    front: bool
    front_likelihood: float | None
    error: str | None
    command: str


@dataclass(frozen=True)
class Answer:
    """What was asked of what, how the race went, and the verdict. `new_runs`: those that no log knew."""

    file: MeasureFile
    question: Question
    race: Race
    verdict: Verdict
    new_runs: int

    @property
    def rows(self) -> list[AnswerRow]:
        """A row for each configuration, in plain values, in the order of the file."""
        return [self._row(place) for place in range(len(self.file.configurations))]

    def standing(self, place: int) -> str:
        """What a configuration is: chosen, not ruled out, or why it is out."""
        if place == self.verdict.chosen:
            return CHOSEN
        if place in self.race.out:
            return self.race.out[place]
        return LEFT if place in self.race.judged() else WAITING

    @property
    def data(self) -> dict[str, object]:
        """The answer in plain values, for files and programs."""
        found = self.verdict
        chosen = None if found.chosen is None else self.file.configurations[found.chosen]
        return {
            "choose": self.question.choose,
            "subject_to": [limit.text for limit in self.question.limits],
            "limits": [
                {"metric": self.file.metrics[limit.metric].name, "sign": limit.sign, "value": limit.value}
                for limit in self.question.limits
            ],
            "metrics": {metric.name: metric.unit for metric in self.file.metrics},
            "axes": [self.file.metrics[metric].name for metric, _ in self.question.axes],
            "status": found.status,
            "stop_reason": self.race.stop_reason,
            "confidence": self.file.confidence,
            "by_model": self.file.goes_by_model,
            "chosen": None if chosen is None else {"hash": chosen.hash, "fields": dict(chosen.values)},
            "keeps_limits": found.is_kept,
            "likelihood": found.likelihood,
            "gap": found.gap,
            "not_ruled_out": [self.file.configurations[place].hash for place in found.others],
            "runs": len(self.race.measured),
            "new_runs": self.new_runs,
        }

    def _row(self, place: int) -> AnswerRow:
        configuration = self.file.configurations[place]
        estimate = self.race.estimates.get(place)
        by_model = self.file.goes_by_model and place in self.race.judged()
        alpha = (1 - self.file.confidence) / 2
        return {
            "hash": configuration.hash,
            "fields": dict(configuration.values),
            "standing": self.standing(place),
            "repeats": sum(of == place for of, _ in self.race.measured),
            "metrics": {} if estimate is None else self._intervals(estimate.mean, estimate.half_width(alpha)),
            "predicted": self._intervals(self.race.mean(place), self.race.half_width(place, alpha)) if by_model else {},
            "front": place in self.verdict.on_front,
            "front_likelihood": self.verdict.front.get(place),
            "error": self.race.errors.get(place),
            "command": shlex.join(configuration.command(self.file.seed)),
        }

    def _intervals(self, mean: NDArray[np.float64], half: NDArray[np.float64]) -> dict[str, dict[str, float]]:
        """By metric, the mean and the ends of its own interval with the file's confidence."""
        return {
            metric.name: {"mean": float(value), "low": float(value - width), "high": float(value + width)}
            for metric, value, width in zip(self.file.metrics, mean, half, strict=True)
        }


def write_answer(folder: Path, answer: Answer) -> None:
    """Write the table; in the CSV, what is nested has names such as fields.probes and throughput.mean."""
    lines = [_flat(row) for row in answer.rows]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    data = {"format": FORMAT, "version": VERSION, "answer": answer.data, "rows": answer.rows}
    write_table(folder, columns, lines, data)


def _flat(row: AnswerRow) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in row.items():
        if name == "fields":
            flat |= {f"fields.{key}": entry for key, entry in row["fields"].items()}
        elif name in ("metrics", "predicted"):
            of = row["metrics"] if name == "metrics" else row["predicted"]
            end = "" if name == "metrics" else f"{name}."
            flat |= {f"{end}{metric}.{key}": number for metric, found in of.items() for key, number in found.items()}
        else:
            flat[name] = value
    return flat
