"""Accordion's controller in two small trainings, against constant ranks at equal data and other schedules, five seeds.

`pytest tests/benchmarks/test_accordion_seeds.py --tables FOLDER` writes the table of docs/ranks.md. A small CNN learns
noisy images, a small GPT sentences of a Markov chain, for 12 epochs in two workers in ranks 4 and 1. The learning rate
falls to a tenth for the last quarter; looks are two epochs apart instead of ten.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from gapless.encodings.ranks.baselines import hand_written_epochs
from gapless.encodings.ranks.training.runs import loss_at_equal_data

torch = pytest.importorskip("torch")

LANGUAGE = f"{Path(__file__).parents[1] / 'support' / 'small_language.py'}:language,sentences=400"
MODELS = {"CNN": ("train:net,layers=4,width=16,batch=640,size=8,classes=10", 0.05), "GPT": (LANGUAGE, 0.2)}
EPOCHS, LOW, HIGH = 12, "powersgd:4", "powersgd:1"
DETECTION = {"interval": 2}
TITLE = "Accordion's controller and other schedules after 12 epochs of two small models, five seeds"


def runs_of(model: str, rate: float, seed: int) -> dict[str, dict[str, float]]:
    """What each run of a seed lost, sent and took."""
    from gapless.torch.ddp.buckets import trainable
    from gapless.torch.ddp.training import Control, Recipe, Variant, examples_of, train

    rates = tuple(rate * (0.1 if epoch >= EPOCHS * 3 // 4 else 1.0) for epoch in range(EPOCHS))
    recipe = Recipe(model, seed, 16, rates, 0.9, 0.2, 2, 300.0)
    names = tuple(trainable(examples_of(recipe).work.model))
    critical = hand_written_epochs(torch.tensor(rates).numpy(), 3, 2)

    def fixed(low: str, high: str) -> tuple[tuple[str, ...], ...]:
        return tuple(((low if is_low else high),) * len(names) for is_low in critical)

    def controlled(name: str, low: str, high: str) -> Variant:
        options = json.dumps({"low": low, "high": high, "detection": DETECTION})
        factory = "gapless.encodings.ranks.training.variants:accordion"
        return Variant(name, names, fixed(low, high), control=Control(factory, options))

    variants = [
        *(Variant(f"constant {mode}", names, fixed(mode, mode)) for mode in (HIGH, "powersgd:2", LOW)),
        controlled("accordion", LOW, HIGH), controlled("reversed", HIGH, LOW),
        Variant("hand-written", names, fixed(LOW, HIGH)), Variant("hand-written-reversed", names, fixed(HIGH, LOW)),
    ]  # fmt: skip
    runs = train(recipe, variants)
    points = [(run.sent_bytes[0] / 4, run.loss[-1]) for run in runs[:3]]
    found = {}
    for run in runs:
        assert len(set(run.sent_bytes)) == 1, run.name
        equal = loss_at_equal_data(points, run.sent_bytes[0] / 4)
        assert equal is not None, run.name
        found[run.name] = {"loss": run.loss[-1], "floats": run.sent_bytes[0] / 4e6, "equal": equal, "s": run.train_s}
    return found


@pytest.mark.usefixtures("keep_tables", "takes_minutes")
def test_what_the_controller_gains_over_constant_ranks_at_equal_data(tables: Any) -> None:
    table = tables.table("accordion_seeds", TITLE)
    for title, (model, rate) in MODELS.items():
        seeds = [runs_of(model, rate, seed) for seed in range(5)]
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
                },
            )  # fmt: skip
        floats = {name: mean(runs[name]["floats"] for runs in seeds) for name in seeds[0]}
        assert floats[f"constant {HIGH}"] < floats["accordion"] < floats[f"constant {LOW}"]
