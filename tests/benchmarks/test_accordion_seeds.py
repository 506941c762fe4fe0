"""Accordion's controllers in two small trainings, against constant ranks at equal data and other schedules, five seeds.

`pytest tests/benchmarks/test_accordion_seeds.py --tables FOLDER` writes the tables of docs/ranks.md. A small CNN learns
noisy images, a small GPT sentences of a Markov chain, for 24 epochs in two workers. As in Accordion's paper, the
learning rate falls to a tenth after a half and after five sixths of the epochs. Gradients are sent on an emulated wire.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import pytest

import gapless
from gapless.encodings.ranks.baselines import RULES, hand_written_epochs
from gapless.encodings.ranks.parameters import Parameters
from gapless.encodings.ranks.problem import Problem
from gapless.encodings.ranks.training.runs import loss_at_equal_data
from gapless.options import SolveOptions
from gapless.system import Session

if TYPE_CHECKING:
    from gapless.torch.ddp.training import Recipe, Trained, Variant

torch = pytest.importorskip("torch")

LANGUAGE = f"{Path(__file__).parents[1] / 'support' / 'small_language.py'}:language,sentences=400"
MODELS = {"CNN": ("train:net,layers=4,width=16,batch=640,size=4,classes=50", 0.05), "GPT": (LANGUAGE, 0.2)}
LARGE = "train:net,layers=4,width=16,batch=61440,size=4,classes=50"
EPOCHS, RANKS, SEEDS, LARGE_SEEDS = 24, ("powersgd:1", "powersgd:2", "powersgd:4"), 5, 3
HIGH, LOW = RANKS[0], RANKS[-1]
DETECTION = {"interval": 2}
BYTES_PER_S, LATENCY_S = 2.5e6, 50e-6
"""Of the wire; ten times as fast for the large batch, which sends whole gradients only."""
RATE_WARM_UP = 2
"""Epochs in which the learning rate rises, where batches differ."""
FACTORIES = "gapless.encodings.ranks.training"


def rates_of(rate: float, warm_up: int = 1) -> tuple[float, ...]:
    falls = (EPOCHS // 2, EPOCHS * 5 // 6)
    return tuple(
        rate * min(1.0, (epoch + 1) / warm_up) * 0.1 ** sum(epoch >= at for at in falls) for epoch in range(EPOCHS)
    )


def recipe_of(model: str, rate: float, seed: int, batch: int = 16, warm_up: int = 1) -> Recipe:
    from gapless.torch.ddp.training import Recipe

    speed = 10 if model == LARGE else 1
    return Recipe(model, seed, batch, rates_of(rate, warm_up), 0.9, 0.2, 2, 300.0, 4, speed * BYTES_PER_S, LATENCY_S)


def schedules(recipe: Recipe, folder: Path) -> list[Variant]:
    """Constant ranks, rules, and plans for the data that Accordion's rule sends in a training without compression."""
    from gapless.encodings.ranks.training.tracing import recorded_trace
    from gapless.profiles.compression.trace import write_compression_trace
    from gapless.torch.ddp.training import Control, Variant

    trace, _ = recorded_trace(replace(recipe, bytes_per_s=0.0), RANKS, (), Session(SolveOptions(), lambda line: None))
    names, parameters = trace.layer_names, Parameters(detection_epochs=DETECTION["interval"])
    everything = int(trace.steps.sum()) * int(trace.sent_bytes.max(axis=1).sum())
    question = Problem(trace, everything, phases="epoch")
    data_bytes = question.sent_bytes(RULES["accordion"](question, everything, parameters, recipe.seed))
    result = gapless.solve(Problem(trace, data_bytes))
    files = {"plan": str(folder / "plan.json"), "trace": str(folder / "trace.npz")}
    result.save(files["plan"])
    write_compression_trace(files["trace"], trace)
    planned = [mode for phase in result.details["phases"] for mode in [tuple(phase["modes"])] * phase["epochs"]]
    adaqs = RULES["adaqs"](question, everything, parameters, recipe.seed)
    critical = hand_written_epochs(trace.learning_rate, 2, 1)

    def fixed(low: str, high: str) -> tuple[tuple[str, ...], ...]:
        return tuple(((low if is_low else high),) * len(names) for is_low in critical)

    def controlled(name: str, factory: str, **options: object) -> Variant:
        return Variant(name, names, fixed(LOW, LOW), control=Control(f"{FACTORIES}.{factory}", json.dumps(options)))

    return [
        *(Variant(f"constant {mode}", names, fixed(mode, mode)) for mode in (*RANKS, "plain")),
        controlled("accordion", "variants:accordion", low=LOW, high=HIGH, detection=DETECTION),
        controlled("reversed", "variants:accordion", low=HIGH, high=LOW, detection=DETECTION),
        Variant("hand-written", names, fixed(LOW, HIGH)), Variant("hand-written-reversed", names, fixed(HIGH, LOW)),
        Variant("adaqs", names, tuple(tuple(RANKS[mode] for mode in row) for row in adaqs.tolist())),
        Variant("plan", names, tuple(planned)),
        controlled("corrected", "corrected:corrected_plan", **files, tolerance=0.25, looks=1),
    ]  # fmt: skip


def batches(model: str, rate: float, seed: int, sizes: Sequence[int]) -> dict[str, Trained]:
    """Constant batches, the learning rate in proportion, and Accordion between the first and the last; sent plain."""
    from gapless.torch.ddp.buckets import trainable
    from gapless.torch.ddp.training import Control, Variant, examples_of, train

    found = {}
    for size in sizes:
        recipe = recipe_of(model, rate * size / sizes[0], seed, size, RATE_WARM_UP)
        names = tuple(trainable(examples_of(recipe).work.model))
        plain = (("plain",) * len(names),) * EPOCHS
        variants = [Variant(f"constant batch {2 * size}", names, plain)]
        if size == sizes[0]:
            options = json.dumps({"low": size, "high": sizes[-1], "detection": DETECTION})
            control = Control(f"{FACTORIES}.variants:accordion_batches", options)
            variants.append(Variant("accordion-batches", names, plain, control=control))
        found |= {run.name: run for run in train(recipe, variants)}
    return found


def figures(runs: dict[str, Trained]) -> dict[str, dict[str, Any]]:
    """By schedule: what was lost, sent and taken, beside constant ones at equal data."""
    points = [(max(run.sent_bytes) / 4e6, run.loss[-1]) for name, run in runs.items() if name.startswith("constant")]
    found = {}
    for name, run in runs.items():
        assert len(set(run.sent_bytes)) == 1, name
        floats = run.sent_bytes[0] / 4e6
        equal = loss_at_equal_data(points, floats)
        assert equal is not None, name
        found[name] = {"loss": run.loss[-1], "floats": floats, "equal": equal, "s": run.train_s, "cpu": run.cpu_s,
                       "wire": run.wire_s}  # fmt: skip
    return found


def add_rows(table: Any, title: str, seeds: Sequence[dict[str, dict[str, Any]]]) -> None:
    for name in seeds[0]:
        rows = [runs[name] for runs in seeds]
        losses = [row["loss"] for row in rows]
        wins = sum(row["loss"] < row["equal"] for row in rows)
        table.add(
            f"{title}, {name}", model=title, schedule=name, loss=round(mean(losses), 4),
            deviation=round(stdev(losses), 4), **{
                "constant at equal data": round(mean(row["equal"] for row in rows), 4),
                "below it": "-" if name.startswith("constant") else f"{wins} of {len(rows)}",
                "million floats": round(mean(row["floats"] for row in rows), 3),
                "seconds": round(mean(row["s"] for row in rows), 2),
                "on the wire": round(mean(row["wire"] for row in rows), 2),
                "processor": round(mean(row["cpu"] for row in rows), 2),
            },
        )  # fmt: skip


@pytest.mark.usefixtures("keep_tables", "takes_minutes")
@pytest.mark.parametrize("title", MODELS)
def test_what_controllers_gain_over_constant_ranks_at_equal_data(tables: Any, title: str, tmp_path: Path) -> None:
    from gapless.torch.ddp.training import train

    model, rate = MODELS[title]
    seeds, by_batch = [], []
    for seed in range(SEEDS):
        recipe = recipe_of(model, rate, seed)
        seeds.append(figures({run.name: run for run in train(recipe, schedules(recipe, tmp_path))}))
        by_batch.append(figures(batches(model, rate, seed, (16, 32, 64))))
    table = tables.table("accordion_seeds", "Accordion's controllers and other schedules after 24 epochs, five seeds")
    add_rows(table, title, seeds)
    add_rows(table, title, by_batch)
    floats = {name: mean(runs[name]["floats"] for runs in seeds) for name in seeds[0]}
    assert floats[f"constant {HIGH}"] < floats["accordion"] < floats[f"constant {LOW}"]
    for runs in seeds:
        assert runs[f"constant {HIGH}"]["wire"] < runs["accordion"]["wire"] < runs[f"constant {LOW}"]["wire"]


@pytest.mark.usefixtures("keep_tables", "takes_minutes")
def test_what_accordion_loses_at_a_batch_of_16384(tables: Any) -> None:
    seeds = [figures(batches(LARGE, 0.05, seed, (256, 8192))) for seed in range(LARGE_SEEDS)]
    table = tables.table("accordion_large_batch", "A batch of 16,384 in all, 24 epochs of a small CNN, three seeds")
    add_rows(table, "CNN", seeds)
    assert all(runs["accordion-batches"]["floats"] < runs["constant batch 512"]["floats"] for runs in seeds)
