"""Choosing from 60 runs: regret of the model that `gapless sweep --choose` asks, of random search, Optuna and the race.

`pytest tests/benchmarks/test_few_runs.py --tables FOLDER` writes the tables of docs/how-to/choose-a-configuration.md.
Ten functions of 144 configurations or so are measured with noise (a deviation of 3); regret is how far the true value
of what is chosen is below the best. The race measures each three times and more, since it must: it shows what many runs
buy. Of three real programs (compression, a blocked product of matrices, a database) the truth is the median of nine
runs.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import product
from statistics import mean, median
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.sweeps.measured.few_runs import few_runs
from gapless.sweeps.measured.measure_file import Metric, Runs
from gapless.sweeps.measured.model import placed
from gapless.sweeps.measured.question import read_question
from gapless.sweeps.measured.race import Run, race
from gapless.sweeps.measured.verdict import verdict

pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install '.[choose]' in a checkout")

NOISE, BUDGET = 3.0, 60
METRICS = (Metric("value", "value", "", 1.0),)
TITLE = "Mean regret after 60 runs, noise of 3; of the race after at least three runs of each configuration"

Values = NDArray[np.float64]
Grid = list[dict[str, Any]]


def grid(*counts: int) -> Grid:
    return [dict(zip("abcd", steps, strict=False)) for steps in product(*map(range, counts))]


def at(grid: Grid, function: Callable[..., float]) -> Values:
    """The function at each setting, whose steps are spread over 0 to 1."""
    most = {name: max(one[name] for one in grid) for name in grid[0]}
    return np.array([function(*(one[name] / most[name] for name in one)) for one in grid])


PLANE, CUBE, FOUR = grid(12, 12), grid(6, 6, 4), grid(4, 4, 3, 3)
KINDS: Grid = [{"kind": "abcd"[kind], "step": step} for kind in range(4) for step in range(36)]
FUNCTIONS: dict[str, tuple[Grid, Values]] = {
    "bowl": (PLANE, at(PLANE, lambda x, y: 100 - 60 * ((x - 0.62) ** 2 + (y - 0.33) ** 2))),
    "steep": (PLANE, at(PLANE, lambda x, y: 100 - 400 * ((x - 0.62) ** 2 + (y - 0.33) ** 2))),
    "ridge": (PLANE, at(PLANE, lambda x, y: 100 - 80 * (x - 0.8 * y - 0.1) ** 2 - 10 * (y - 0.7) ** 2)),
    "saturating": (PLANE, at(PLANE, lambda x, y: 100 * (1 - np.exp(-3 * x)) - 35 * x - 20 * (y - 0.5) ** 2)),
    "two peaks": (PLANE, at(PLANE, lambda x, y: 80 * np.exp(-8 * ((x - 0.2) ** 2 + (y - 0.2) ** 2))
                            + 90 * np.exp(-12 * ((x - 0.8) ** 2 + (y - 0.75) ** 2)))),
    "waves": (PLANE, at(PLANE, lambda x, y: 60 + 15 * np.sin(6 * x) + 12 * np.cos(5 * y))),
    "cliff": (PLANE, at(PLANE, lambda x, y: 60 * (x + y) if x + y < 1.25 else 20.0)),
    "three fields": (CUBE, at(CUBE, lambda x, y, z: 100 - 40 * ((x - 0.4) ** 2 + (y - 0.8) ** 2) - 25 * abs(z - 0.33))),
    "four fields": (FOUR, at(FOUR, lambda w, x, y, z: 100 - 30 * ((w - 0.33) ** 2 + (x - 0.67) ** 2 + (y - 0.5) ** 2
                                                              + z**2) + 10 * w * x)),
    "kinds": (KINDS, np.array([50 + 8 * kind - 60 * (step / 35 - 0.2 * kind - 0.1) ** 2
                               for kind in range(4) for step in range(36)])),
}  # fmt: skip

Measured = Callable[[int], float]


def by_model(settings: Grid, measured: Measured, seed: int) -> int:
    def measure(order: Sequence[Run]) -> Iterator[tuple[Run, Values | str]]:
        yield from ((run, np.array([measured(run[0])])) for run in order)

    question = read_question(METRICS, "max:value")
    found = verdict(few_runs(placed(settings), Runs(3, 24, BUDGET), question, 0.95, measure, seed), seed).chosen
    assert found is not None
    return found


def by_race(settings: Grid, measured: Measured, seed: int) -> int:
    def measure(order: Sequence[Run]) -> Iterator[tuple[Run, Values | str]]:
        yield from ((run, np.array([measured(run[0])])) for run in order)

    runs = Runs(3, 24, 4 * len(settings))
    found = verdict(race(len(settings), runs, read_question(METRICS, "max:value"), 0.95, measure, seed), seed).chosen
    assert found is not None
    return found


def by_chance(settings: Grid, measured: Measured, seed: int) -> int:
    places = np.random.default_rng(seed).permutation(len(settings))[:BUDGET]
    return int(places[int(np.argmax([measured(int(place)) for place in places]))])


def by_optuna(settings: Grid, measured: Measured, seed: int) -> int:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = {name: list(dict.fromkeys(one[name] for one in settings)) for name in settings[0]}
    places = {tuple(one.values()): place for place, one in enumerate(settings)}

    def value(trial: Any) -> float:
        found = [
            values[trial.suggest_int(name, 0, len(values) - 1)]
            if isinstance(values[0], int) else trial.suggest_categorical(name, values)
            for name, values in names.items()
        ]  # fmt: skip
        return measured(places[tuple(found)])

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(value, n_trials=BUDGET)
    best = study.best_params
    return places[
        tuple(values[best[name]] if isinstance(values[0], int) else best[name] for name, values in names.items())
    ]


SEARCHES = {"model": by_model, "random": by_chance, "Optuna": by_optuna, "race": by_race}
if find_spec("optuna") is None:  # pip install optuna
    del SEARCHES["Optuna"]


def noisy(truth: Values, seed: int) -> Measured:
    noise = np.random.default_rng([seed, 1])
    return lambda place: float(truth[place] + NOISE * noise.standard_normal())


def run_of(program: Callable[..., float], settings: Grid) -> Measured:
    return lambda place: program(**settings[place])


@pytest.mark.usefixtures("keep_tables")
def test_the_model_regrets_less_than_random_search(tables, sized) -> None:  # type: ignore[no-untyped-def]
    seeds, names = sized(20, 1), sized(list(FUNCTIONS), ["bowl"])
    table = tables.table("few_runs", TITLE)
    regrets: dict[str, list[float]] = {name: [] for name in SEARCHES}
    for name in names:
        settings, truth = FUNCTIONS[name]
        found = {}
        for search, choose in SEARCHES.items():
            each = [truth.max() - truth[choose(settings, noisy(truth, seed), seed)] for seed in range(seeds)]
            found[search] = mean(each)
            regrets[search].extend(each)
        table.add(name, function=name, **{search: round(value, 2) for search, value in found.items()})
    if len(names) > 1:
        table.add("mean", function="mean", **{search: round(mean(each), 2) for search, each in regrets.items()})
        assert mean(regrets["model"]) <= 0.9
        assert mean(regrets["model"]) < mean(regrets["random"])


TEXT = " ".join(f"{word} gradients of layer {number % 97} wait for {word[::-1]}" for number in range(3000)
                for word in ("sharded", "planned")[number % 2 :][:1]).encode()  # fmt: skip
LEFT, RIGHT = (np.random.default_rng(side).standard_normal((160, 160)) for side in range(2))


def compressed(level: int, bits: int, memory: int) -> float:
    """Bytes saved for each second and a half that is spent: a trade of size against time."""
    begin_s = time.process_time()
    packer = zlib.compressobj(level, zlib.DEFLATED, bits, memory)
    size = len(packer.compress(TEXT) + packer.flush())
    return -(time.process_time() - begin_s) * 1e3 - size / 2e3


def multiplied(rows: int, columns: int, inner: int) -> float:
    """Milliseconds of a product in blocks, times -1."""
    begin_s, total = time.process_time(), np.zeros((160, 160))
    for i, j, k in product(range(0, 160, rows), range(0, 160, columns), range(0, 160, inner)):
        total[i : i + rows, j : j + columns] += (
            LEFT[i : i + rows, k : k + inner] @ RIGHT[k : k + inner, j : j + columns]
        )
    return -(time.process_time() - begin_s) * 1e3


def stored(page: int, cache: int, batch: int) -> float:
    """Milliseconds of inserts into a database in memory and of a query of all, times -1."""
    begin_s = time.process_time()
    base = sqlite3.connect(":memory:")
    base.execute(f"pragma page_size={page}")
    base.execute(f"pragma cache_size={cache}")
    base.execute("create table t (a integer, b text)")
    for first in range(0, 2000, batch):
        base.executemany("insert into t values (?, ?)", [(n % 31, "x" * (n % 50)) for n in range(first, first + batch)])
        base.commit()
    base.execute("select a, count(*), max(b) from t group by a").fetchall()
    base.close()
    return -(time.process_time() - begin_s) * 1e3


PROGRAMS: dict[str, tuple[Callable[..., float], dict[str, list[int]]]] = {
    "compression": (compressed, {"level": [1, 2, 3, 4, 6, 9], "bits": [9, 11, 13, 15], "memory": [1, 3, 5, 7, 8, 9]}),
    "blocked product": (multiplied, {name: [10, 20, 40, 80, 160] for name in ("rows", "columns", "inner")}),
    "database": (stored, {"page": [512, 1024, 4096, 16384, 65536], "cache": [10, 100, 1000, 2000],
                          "batch": [5, 10, 50, 100, 200, 500, 1000]}),
}  # fmt: skip


@pytest.mark.usefixtures("keep_tables")
def test_three_real_programs(tables, sized) -> None:  # type: ignore[no-untyped-def]
    """In milliseconds of processor time (compression: and 2,000 bytes to the millisecond)."""
    table = tables.table("few_runs_programs", "Mean regret after 60 runs of real programs, in ms of processor time")
    for name in sized(list(PROGRAMS), ["compression"]):
        program, fields = PROGRAMS[name]
        settings: Grid = [dict(zip(fields, values, strict=True)) for values in product(*fields.values())]
        truth = np.array([median(program(**one) for _ in range(sized(9, 1))) for one in settings])
        found = {}
        for search, choose in SEARCHES.items():
            chosen = [choose(settings, run_of(program, settings), seed) for seed in range(sized(5, 1))]
            found[search] = round(mean(float(truth.max() - truth[place]) for place in chosen), 3)
        spread = round(float(np.median(truth.max() - truth)), 3)
        table.add(name, program=name, configurations=len(settings), **found, **{"a random one": spread})
