"""How a layer's error is divided among heads: measured one by one, or by what each changes of the layer's output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from extras import needs_transformers

from gapless.profiles.cache.layout import HEADS, PARTS, Layout
from gapless.profiles.cache.profile import Floats

pytestmark = needs_transformers

LAYOUT = Layout(8, 8, 8, 0)
DEAD = 1
"""A key head of the first layer of which nothing reaches the output."""


@pytest.fixture(scope="module")
def full() -> Any:
    """A small model of grouped queries on a few tokens, with one head dead."""
    from gapless.torch.cache.measurement import FullModel
    from gapless.torch.heads.models import load_language_model
    from gapless.torch.library import torch

    found = load_language_model("hf:tiny-llama-gqa")
    first = found.layers[0]
    queries = first.heads // first.key_heads * first.dimension
    output = next(module.o_proj for module in found.model.modules() if hasattr(module, "o_proj"))
    output.weight.data[:, DEAD * queries : (DEAD + 1) * queries] = 0
    tokens = torch.randint(256, (1, 24), generator=torch.Generator().manual_seed(0))
    return FullModel(found, tokens, LAYOUT)


@pytest.fixture(scope="module")
def shares(full: Any) -> dict[str, Floats]:
    """Of each way to divide."""
    from gapless.torch.cache.measurement import head_changes

    by = full.heads(lambda: False), head_changes(full.found, full.sequences, LAYOUT)
    return dict(zip(HEADS, by, strict=True))


@pytest.mark.parametrize("by", HEADS)
def test_a_head_that_reaches_no_output_has_no_share(shares: dict[str, Floats], by: str) -> None:
    found = shares[by]
    is_dead = np.zeros(found.shape, dtype=bool)
    is_dead[0, :, DEAD] = True
    assert found[is_dead] == pytest.approx(0.0, abs=1e-9 * found.max())
    assert (found[~is_dead] > 1e-6 * found.max()).all()


def test_a_measured_share_is_what_the_head_alone_spoils_in_three_bits(full: Any, shares: dict[str, Floats]) -> None:
    for number, part in enumerate(PARTS):
        names = ("full", "full", "int3", "full")
        modes = replace(full.full[1], keys=names) if part == "keys" else replace(full.full[1], values=names)
        assert shares["measured"][1, number, 2] == full.measured([full.full[0], modes, *full.full[2:]]).divergence


def test_without_time_no_shares_are_made_up(full: Any) -> None:
    assert full.heads(lambda: True) is None
