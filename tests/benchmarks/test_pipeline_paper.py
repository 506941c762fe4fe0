"""Optimus-CC's tables taken apart: what each kind of communication adds, in its model of costs and at its settings.

`pytest tests/benchmarks/test_pipeline_paper.py --tables FOLDER` writes the tables of docs/pipeline.md. 1F1B on even
cuts, 16 micro-batches, four replicas. Each device encodes and decodes its part at rank 16 as fast as section 9.6
measured, and at rank r in r / 16 times the time, as orthogonalising takes. `bandwidth` is the highest at which a
technique saves here what it saves in the paper's table 2: of hops for CB, of sums for FE and SC; all else stays. Where
there is none, it is said how much is saved at most.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from optimus_cc import PAPER_DAYS, speedup
from result_tables import ResultTables

from gapless.encodings.pipeline.compression.modes import compressor_bytes
from gapless.encodings.pipeline.compression.recipes import follow
from gapless.encodings.pipeline.compression.rules import RECIPES, Recipe
from gapless.encodings.pipeline.cut.costs import even_cut
from gapless.encodings.pipeline.order.orders import Candidate
from gapless.encodings.pipeline.problem import EvenHops, Problem, problem
from gapless.encodings.pipeline.programs.breakdown import exposed_s
from gapless.encodings.pipeline.programs.memory import held_bytes
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable

NIC = 25e9
"""Bytes a second: 200 Gb/s."""
STEPS, DAY_S = 230_000, 86_400
MODELS = {"gpt-8.3b": (19, 37, 55), "gpt-2.5b": (14, 27, 40)}
RULES = ("1f1b", "1f1b+cb", "1f1b+cb+fe", "1f1b+cb+fe+sc75")
ENCODE, DECODE = 1 / 98.37e9, 1 / 8.32e12
RANKS = (16, 32, 64, 128, 256, 512)
HOPS, SUMS = RANKS.index(16), RANKS.index(128)


@cache
def modes(rows: int, devices: int) -> CompressionTable:
    """All ranks. The sums' matrices are taken to be square, of so many rows; a rank has so many devices."""
    none = np.zeros(2)

    def mode(rank: int) -> CompressionMode:
        cost = rank / 16 / devices
        return CompressionMode(
            f"rank {rank}", min(1.0, 2 * rank / rows), rank, cost * ENCODE, cost * DECODE, none, none
        )

    return CompressionTable("ranks", np.array([0.0, 1.0]), tuple(map(mode, RANKS)))


def asked(model: str, ranks: int = 4, hop: float = NIC, replica: float = NIC, hidden: int = 3072,
          devices: int = 8) -> Problem:  # fmt: skip
    """At the paper's settings; bandwidths are of a rank."""
    return problem(model, ranks=ranks, micro_batches=16, bandwidth=hop, replica_bandwidth=replica, replicas=4,
                   compression=modes(hidden, devices), error_budget=1.0)  # fmt: skip


def followed(question: Problem, rule: str, cut: tuple[int, ...] = (), rank: int = 128) -> Candidate:
    """What a recipe makes of a cut, an even one if none is given."""
    cut = cut or even_cut(question.profile.layer_count, question.ranks)
    return follow(question, cut, RECIPES.get(rule, Recipe()), 1 + HOPS, 1 + RANKS.index(rank))[0]


def parts(question: Problem, rule: str, cut: tuple[int, ...] = (), rank: int = 128) -> dict[str, float]:
    """Seconds of a step by kind."""
    found = followed(question, rule, cut, rank)
    return exposed_s(found.stages, found.order)


def kept(question: Problem, rule: str, cut: tuple[int, ...]) -> tuple[float, float]:
    """Bytes that compressors keep on the rank where they are most, and their share of what plain ranks hold there."""
    found, plain = followed(question, rule, cut), followed(question, "1f1b", cut)
    each = compressor_bytes(question, found.stages, found.order)
    held = plain.stages.state_bytes + held_bytes(question, plain.stages, plain.order, plain.timeline)
    return float(each.max()), float((each / held).max())


def step_s(question: Problem, rule: str, cut: tuple[int, ...] = (), rank: int = 128) -> float:
    """Of a step."""
    return sum(parts(question, rule, cut, rank).values())


def bandwidth_that_saves(model: str, before: str, after: str, saved_s: float) -> str:
    """Of hops, or of sums, a second, where the one recipe is so much faster; down to a thousandth of the NIC's."""
    question, most_s = asked(model), 0.0
    for bandwidth in NIC * 0.98 ** np.arange(342):
        if before == "1f1b":
            slower = replace(question, hops=EvenHops(0.0, 1 / bandwidth))
        else:
            slower = replace(question, replicas=replace(question.replicas, beta_s_per_byte=1 / bandwidth))
        most_s = max(most_s, step_s(slower, before, MODELS[model]) - step_s(slower, after, MODELS[model]))
        if most_s >= saved_s:
            return f"{bandwidth / 1e9:.2f} GB"
    return f"none: {most_s:.2f} s at most"


def faster(steps: dict[str, float]) -> dict[str, str]:
    """By how much each recipe is faster than the first."""
    plain_s = steps[RULES[0]]
    return {rule.removeprefix("1f1b+"): f"{100 * speedup(plain_s, steps[rule]):.1f} %" for rule in RULES[1:]}


@pytest.mark.parametrize("model", list(MODELS))
def test_table_2_by_parts(model: str, tables: ResultTables) -> None:
    table = tables.table("pipeline_parts", "A step of Optimus-CC's recipes by kind, and what the paper measured")
    days, question, before = PAPER_DAYS[model], asked(model), ""
    plain_s, steps = step_s(question, "1f1b", MODELS[model]), []
    for rule in RULES:
        by_kind = parts(question, rule, MODELS[model])
        steps.append(sum(by_kind.values()))
        paper_s = days[rule] * DAY_S / STEPS
        saved_s = 0.0 if not before else days[before] * DAY_S / STEPS - paper_s
        bandwidth = bandwidth_that_saves(model, before, rule, saved_s) if before else ""
        table.add(
            f"{model}, {rule}", **{kind: f"{1e3 * seconds:.1f} ms" for kind, seconds in by_kind.items()},
            step=f"{steps[-1]:.3f} s", faster=f"{100 * speedup(plain_s, steps[-1]):.2f} %",
            paper=f"{paper_s:.2f} s", paper_faster=f"{100 * speedup(days['1f1b'], days[rule]):.2f} %",
            bandwidth=bandwidth, kept=f"{kept(question, rule, MODELS[model])[0] / 1e6:.0f} MB",
            kept_share=f"{100 * kept(question, rule, MODELS[model])[1]:.1f} %",
        )  # fmt: skip
        before = rule
    assert steps == sorted(steps, reverse=True)


SPLITS = {(8, 4): NIC, (4, 8): NIC / 2, (2, 16): NIC / 4}
"""Ways of tensors and of the pipeline of 32 devices; ranks of one node share its network (figure 14)."""


def test_more_stages_gain_more_by_hops(tables: ResultTables) -> None:
    table = tables.table("pipeline_splits", "GPT-9.2B on 128 devices: ways of tensors and of the pipeline")
    gained = []
    for (tensors, ranks), bandwidth in SPLITS.items():
        shape = f"gpt:layers=80,hidden=3072,tensor_parallel={tensors}"
        question = asked(shape, ranks, bandwidth, bandwidth, devices=tensors)
        steps = {rule: step_s(question, rule) for rule in RULES}
        gained.append(speedup(steps["1f1b"], steps["1f1b+cb"]))
        table.add(f"TP{tensors} x PP{ranks}", step=f"{steps['1f1b']:.3f} s", **faster(steps))
    assert gained == sorted(gained), "by hops"


SIZES = {"2.5B": (52, 1920, 4), "8.3B": (72, 3072, 4), "39B": (48, 8192, 8), "175B": (96, 12288, 16)}
"""Layers, hidden size and stages (figure 16); the last two as Megatron-LM's and GPT-3's."""


def test_larger_models(tables: ResultTables) -> None:
    table = tables.table("pipeline_sizes", "Optimus-CC's recipes on larger models")
    for name, (layers, hidden, ranks) in SIZES.items():
        question = asked(f"gpt:layers={layers},hidden={hidden}", ranks, hidden=hidden)
        steps = {rule: step_s(question, rule) for rule in RULES}
        table.add(name, step=f"{steps['1f1b']:.3f} s", **faster(steps))


SHARES = ("sc25", "sc50", "sc75", "dp")


def test_selective_stages_against_rank(tables: ResultTables) -> None:
    table = tables.table("pipeline_shares", "GPT-2.5B: steps by share of stages and by rank of their sums")
    question = asked("gpt-2.5b", hidden=1920)
    plain_s = step_s(question, "1f1b+cb+fe", MODELS["gpt-2.5b"])
    for rank in RANKS:
        steps = [step_s(question, f"1f1b+cb+fe+{share}", MODELS["gpt-2.5b"], rank) for share in SHARES]
        table.add(f"rank {rank}", none=f"{1e3 * plain_s:.1f} ms",
                  **{s: f"{1e3 * found_s:.1f} ms" for s, found_s in zip(SHARES, steps, strict=True)})  # fmt: skip
        assert steps == sorted(steps, reverse=True)
