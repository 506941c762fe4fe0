"""Configurations with known truth, measured with noise that a seed decides; in this process, or as a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.sweeps.measured.measure_file import Metric, Runs
from gapless.sweeps.measured.question import read_question
from gapless.sweeps.measured.race import Race, Run, race

METRICS = (Metric("throughput", "rate", "", 1.0), Metric("memory", "memory", "bytes", 1.0))

PROGRAM = """
import json, random, sys
speed, memory, seed = sys.argv[1:]
noise = random.Random(" ".join(sys.argv))
print("what a library has to say")
print(json.dumps({"rate": float(speed) + noise.gauss(0, 1), "memory": {"kib": float(memory)}}))
"""
"""Prints its arguments, the first of them with noise."""

FILE = """
format = "gapless.measure"
version = 1
command = "{python} noisy.py {speed} {memory} {seed}"

[metrics]
throughput = { path = "rate", unit = "queries/s" }
memory = { path = "memory.kib", unit = "KiB" }

[runs]
first = 2
most = 4
budget = 12

[[grid]]
speed = [100, 900]
memory = 900

[[grid]]
speed = 500
memory = [1000, 2000]
"""
"""Of four configurations the second is the best; with 1 MiB at most, the fourth is infeasible."""


def write_files(folder: Path, text: str = FILE) -> Path:
    """The program and its measure file in a folder."""
    (folder / "noisy.py").write_text(PROGRAM)
    (folder / "measure.toml").write_text(text)
    return folder / "measure.toml"


def trial(
    seed: int, means: Sequence[Sequence[float]], runs: Runs, subject_to: Sequence[str] = (), spread: float = 5.0
) -> Race:
    """A race for the most throughput between configurations with these true means, by metric; its noise is normal."""
    generator = np.random.default_rng([seed, 1])
    truth = np.array(means)

    def measure(order: Sequence[Run]) -> Iterator[tuple[Run, NDArray[np.float64] | str]]:
        for place, repeat in order:
            yield (place, repeat), truth[place] + spread * generator.standard_normal(truth.shape[1])

    question = read_question(METRICS, "max:throughput", subject_to)
    return race(len(truth), runs, question, 0.95, measure, seed)
