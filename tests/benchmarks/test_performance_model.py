"""The performance model of data-parallel training against steps that ran.

`pytest tests/benchmarks/test_performance_model.py -s` measures, predicts and runs a convolutional network and a small
GPT on 2 and 4 processes, as `gapless validate performance-model` does, in 60 steps of which 10 don't count. Computation
and wire are emulated, which holds on a busy machine. What is asserted: buckets and exact gradients are as planned, and
whether compressing pays is as predicted. Times are printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless import SolveOptions
from gapless.encodings.cupcake.commands.performance_model import validate_model
from gapless.encodings.cupcake.question import ModelValidationQuestion
from gapless.system import Session

MODELS = ("train:net,width=32", "train:gpt,hidden=128")
SESSION = Session(SolveOptions(), print)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("model", MODELS)
def test_whether_compressing_pays_is_as_predicted(model: str, ranks: int, sized: Callable[[Any, Any], Any]) -> None:
    question = ModelValidationQuestion(
        model=(sized(model, "train:gpt,layers=2,hidden=32"),), ranks=(sized(ranks, 2),), bandwidth=(200e6 / 8,),
        latency=50e-6, bucket=sized(250_000, 50_000), emulate="step", dilation=sized(8.0, 2.0),
        hooks=sized(ModelValidationQuestion.__dataclass_fields__["hooks"].default, ("topk",)),
        warm_up=sized(10, 3), repeats=sized(50, 3),
    )  # fmt: skip
    found = validate_model(question, SESSION)
    print(f"\n{found.text}")
    assert found.is_valid
    assert sized(found.data["agreed"] == found.data["compared"], True)
