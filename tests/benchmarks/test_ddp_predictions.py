"""Predicted steps of data-parallel training against measured ones.

`pytest tests/benchmarks/test_ddp_predictions.py -s` measures, plans and runs a convolutional and a transformer model
on 2 and 4 processes at two bandwidths, as `gapless validate ddp` does. Wire and computation are emulated, and time is
dilated, which holds on a busy machine too. What is asserted: DDP's buckets are those of every fusion that runs, and
gradients of exact modes have the bits that DDP finds by itself in the same buckets. Times are printed, not asserted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless import SolveOptions
from gapless.encodings.cupcake.commands.execution import validate
from gapless.encodings.cupcake.question import ValidationQuestion
from gapless.system import Session

MODELS = {"convolutional": "train:net,width=32", "transformer": "train:gpt,hidden=128"}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("model", list(MODELS))
def test_buckets_and_exact_gradients_are_the_plans(model: str, ranks: int, sized: Callable[[Any, Any], Any]) -> None:
    values = {
        "model": (sized(MODELS[model], "train:net,layers=2,width=8"),), "ranks": (ranks,),
        "bandwidth": sized((100e6 / 8, 1e9 / 8), (1e9 / 8,)), "latency": 50e-6, "hooks": ("topk", "powersgd:4", "fp16"),
        "steps": sized(10, 1), "repeats": sized(7, 1), "emulate": "step", "dilation": sized(20.0, 1.0), "wait": 120.0,
    }  # fmt: skip
    found = validate(ValidationQuestion(**values), Session(SolveOptions(), print))
    print(f"\n{found.text}")
    assert found.is_valid
