"""What modes by layer, and by epoch besides, gain at equal data in a small training, over five seeds.

`pytest tests/benchmarks/test_ranks_seeds.py --tables FOLDER` writes the table of docs/ranks.md. A small GPT learns
sentences of a Markov chain for 12 epochs in two workers; for each seed (weights, data, order) a trace is recorded, and
plans are made for the data that Accordion's rule sends, with looks every two epochs instead of ten.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from gapless.encodings.ranks.baselines import RULES
from gapless.encodings.ranks.parameters import Parameters
from gapless.encodings.ranks.problem import Problem
from gapless.encodings.ranks.solve import solve
from gapless.options import SolveOptions
from gapless.system import Session

torch = pytest.importorskip("torch")

MODEL = f"{Path(__file__).parents[1] / 'support' / 'small_language.py'}:language"
EPOCHS, RATE = 12, 0.2
MODES = ("powersgd:1", "powersgd:2", "powersgd:4")
PARAMETERS = Parameters(detection_epochs=2)
TITLE = "Loss of what is held out after 12 epochs of a small GPT, and floats sent by a worker, five seeds"


def runs_of(seed: int) -> dict[str, tuple[float, float]]:
    """(loss, million floats) of each run of a seed, whose rate decays for the last quarter of the epochs."""
    from gapless.encodings.ranks.training.tracing import recorded_trace
    from gapless.torch.ddp.training import Recipe, Variant, train

    rates = tuple(RATE * (0.1 if epoch >= EPOCHS * 3 // 4 else 1.0) for epoch in range(EPOCHS))
    recipe = Recipe(MODEL, seed, 16, rates, 0.9, 0.2, 2, 300.0, samples=4)
    trace, _ = recorded_trace(recipe, MODES, (), Session(SolveOptions(), lambda line: None))
    everything = int(trace.steps.sum()) * int(trace.sent_bytes.max(axis=1).sum())
    rule = RULES["accordion"](Problem(trace, everything, phases="epoch"), everything, PARAMETERS, seed)
    data_bytes = Problem(trace, everything).sent_bytes(rule)
    questions = {phases: Problem(trace, data_bytes, phases=phases) for phases in ("static", "epoch")}
    found: dict[str, Any] = {f"constant {mode}": [[mode] * trace.layer_count] * EPOCHS for mode in MODES}
    for name in ("accordion", "first-epochs", "last-epochs", "random"):
        modes = RULES[name](questions["epoch"], data_bytes, PARAMETERS, seed)
        found[name] = [[MODES[mode] for mode in row] for row in modes.tolist()]
    for phases, question in questions.items():
        details = solve(question, SolveOptions()).details
        found[f"plan, {phases}"] = [phase["modes"] for phase in details["phases"] for _ in range(phase["epochs"])]
    variants = [Variant(name, trace.layer_names, tuple(map(tuple, modes))) for name, modes in found.items()]
    runs = train(recipe, variants)
    for name, run in zip(found, runs, strict=True):
        assert len(set(run.sent_bytes)) == 1, name
        if name.startswith("plan"):
            assert run.sent_bytes[0] <= data_bytes
    return {run.name: (run.loss[-1], run.sent_bytes[0] / 4e6) for run in runs}


@pytest.mark.usefixtures("keep_tables", "takes_minutes")
def test_the_static_plan_beats_the_rule_at_equal_data(tables) -> None:  # type: ignore[no-untyped-def]
    seeds = [runs_of(seed) for seed in range(5)]
    table = tables.table("ranks_seeds", TITLE)
    for name in seeds[0]:
        losses = [runs[name][0] for runs in seeds]
        wins = sum(runs[name][0] < runs["accordion"][0] for runs in seeds)
        row = {"loss": round(mean(losses), 4), "deviation": round(stdev(losses), 4) if len(losses) > 1 else 0.0,
               "million floats": round(mean(runs[name][1] for runs in seeds), 3),
               "below accordion": f"{wins} of {len(seeds)}"}  # fmt: skip
        table.add(name, modes=name, **row)
    by_phase = [runs["plan, epoch"][0] - runs["plan, static"][0] for runs in seeds]
    print(f"by epoch minus static: {', '.join(f'{difference:+.4f}' for difference in by_phase)}")
    wins = sum(runs["plan, static"][0] < runs["accordion"][0] for runs in seeds)
    assert wins >= len(seeds) - 1
