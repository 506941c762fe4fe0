"""A small GPT trained through a pipeline's plan in eight processes: all rules of Optimus-CC, and shares against ranks.

`pytest tests/benchmarks/test_pipeline_training.py --tables FOLDER` writes the tables of docs/pipeline.md. Four stages,
two replicas, eight micro-batches, a shared embedding; hops at rank 1, sums at rank 2 of 32 unless a row says otherwise.
Each token is one of four that may follow the one before, so no loss is below ln 4 = 1.386; each step has new text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_plans import gpt_profile
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import gapless
from gapless.cli.main import main

MODEL = "train:gpt,layers=6,hidden=32,vocabulary=32,sequence=32,micro_batch=2,tied=1"
STEPS = 120
RULES = ("cb", "cb+no-lep", "naive-cb", "naive-cb+lep", "dp", "naive-cb+dp", "cb+fe", "cb+fe+sc75", "forward")
SHARES, RANKS = ("sc25", "sc50", "sc75", "dp"), (1, 2, 8)
LOOKED = (
    "gradient_error", "gradient_cosine", "mean_share", "mean_cosine", "mean_activations_cosine", "mean_off",
    "mean_inner", "mean_end",
)  # fmt: skip


def trained(
    folder: Path, capsys: pytest.CaptureFixture[str], method: str, *words: str, sequences: int = 2
) -> dict[str, dict[str, Any]]:
    """The runs of a training, by name; `sequences`: of a micro-batch, 16 a step on each replica."""
    chunks = {"placement": "looped", "cut": "auto"} if method.startswith("inter") else {"cut": "even"}
    profile, model = gpt_profile(6, (32 * sequences, 32)), MODEL.replace("micro_batch=2", f"micro_batch={sequences}")
    shape = {"ranks": 4, "micro_batches": 16 // sequences, "replicas": 2, **chunks}
    how = {"method": method, "backward": "whole", "embedding": "separate", "bandwidth": 1e9}
    gapless.pipeline.solve(profile, **shape, **how).save(folder / "plan.json")
    common = ["run", "pipeline", "--model", model, "--ranks", "4", "--plan", str(folder / "plan.json"), "--json"]
    capsys.readouterr()
    assert main([*common, "--steps", str(STEPS), "--learning-rate", "0.003", "--warm-up", "10", *words]) == 0
    return {run["name"]: run for run in json.loads(capsys.readouterr().out)["runs"]}


@pytest.mark.usefixtures("takes_minutes")
@pytest.mark.parametrize(
    ("method", "sequences", "rules"),
    [("1f1b", 2, RULES), ("interleaved-1f1b", 2, ("cb", "naive-cb")), ("1f1b", 1, ("naive-cb", "naive-cb+lep"))],
)
def test_the_rules_of_optimus_cc(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str, sequences: int, rules: tuple[str, ...],
    tables: ResultTables,
) -> None:  # fmt: skip
    words = ["--rules", ",".join(rules), "--hop-mode", "rank 1", "--sum-mode", "rank 2", "--errors-every", "10"]
    runs = trained(tmp_path, capsys, method, *words, "--plot", str(tmp_path / "losses.svg"), sequences=sequences)
    table = tables.table("pipeline_rules", f"A small GPT after {STEPS} steps")
    for name in ("plain", *rules):
        run, plain = runs[name], runs["plain"]
        table.add(
            f"{method if sequences == 2 else '16 micro-batches'}, {name}", loss=f"{run['last_loss']:.3f}",
            sent=f"{100 * _sent(run) / _sent(plain):.1f} %",
            **{key.removeprefix("mean_"): f"{run[key]:.3f}" for key in LOOKED if key in run},
        )  # fmt: skip
    assert runs["plain"]["last_loss"] < 2


def _sent(run: dict[str, Any]) -> int:
    return sum(map(sum, (run["hop_bytes"], run["sum_bytes"], run["embedding_bytes"])))


@pytest.mark.usefixtures("takes_minutes")
def test_shares_of_stages_against_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tables: ResultTables
) -> None:
    modes = ",".join(f"rank {rank}" for rank in RANKS)
    runs = trained(tmp_path, capsys, "1f1b", "--rules", ",".join(SHARES), "--sum-mode", modes)
    table = tables.table(
        "pipeline_quality", f"A small GPT after {STEPS} steps: the loss by share of stages and by rank"
    )
    for rank in RANKS:
        losses = {share: f"{runs[f'{share} rank {rank}']['last_loss']:.3f}" for share in SHARES}
        table.add(f"rank {rank}", none=f"{runs['plain']['last_loss']:.3f}", **losses)
