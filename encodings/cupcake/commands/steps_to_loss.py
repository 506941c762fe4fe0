"""How many more steps training takes in a mode than with plain gradients, as measured on one small model.

A GPT of one layer, 32 wide, learns 16 batches of 16 texts on four ranks by SGD, with one rate for all modes. Plain
gradients come to a loss in 100 steps; what stands here is how many steps a mode takes to that loss, over 100, and never
less than one: what draws or has momentum of its own may be luckier. Other models, rates and numbers of ranks have other
figures. `pytest tests/benchmarks/test_compressor_steps.py --tables FOLDER` measures them.
"""

from __future__ import annotations

import math

from gapless.profiles.compressors.grammar import known_as

__all__ = ["BASIS", "MOST", "STEPS", "steps_to_loss"]

BASIS = "a small GPT on 4 ranks, to the loss of 100 plain steps of SGD"
MOST = 8.0
"""Times as many steps as plain gradients take, after which a training was given up."""

STEPS = {
    "plain": 1.0,
    "fp16": 1.01,
    "bf16": 1.0,
    "int8": 1.0,
    "qsgd:8": 1.0,
    "qsgd:4": 1.0,
    "qsgd:2": 0.99,
    "terngrad": 1.21,
    "topk:0.1": 1.0,
    "topk:0.01": 1.19,
    "topk:0.001": 2.0,
    "ms-topk:0.01": 1.19,
    "dgc:0.01": 0.53,
    "dgc:0.001": math.inf,
    "rand-k:0.1": 1.13,
    "rand-k:0.01": 2.92,
    "rand-k-gathered:0.01": 3.54,
    "ef-signsgd": 1.15,
    "onebit": 1.16,
    "powersgd:1": 1.17,
    "powersgd:2": 1.06,
    "powersgd:4": 1.02,
    "powersgd:8": 1.01,
    "atomo:4": 1.02,
    "signsgd": math.inf,
}
"""By mode; inf where the loss wasn't reached."""


def steps_to_loss(mode: str) -> float | None:
    """Times as many steps as with plain gradients; inf for more than `MOST`, None for what wasn't measured."""
    found = STEPS.get(known_as(mode, STEPS))
    return None if found is None else max(1.0, found)
