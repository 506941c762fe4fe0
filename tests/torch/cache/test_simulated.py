"""Rounded keys and values, and attention that meets a cache as it was at each token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from extras import needs_transformers

from gapless.profiles.cache.layout import FORMATS, PARTS, Layout
from gapless.profiles.cache.modes import LayerModes

pytestmark = needs_transformers

LAYOUT = Layout(8, 16, 16, 2)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", FORMATS[1:])
def test_rounding_is_off_by_half_a_step_at_most(part: str, name: str) -> None:
    from gapless.profiles.cache.layout import bits_of
    from gapless.torch.cache.rounding import rounded
    from gapless.torch.library import torch

    states = torch.randn(2, 3, 32, 8, generator=torch.Generator().manual_seed(1))
    grouped = states.view(2, 3, 2, 16, 8) if part == "keys" else states
    axis = 3
    span = grouped.amax(axis, keepdim=True) - grouped.amin(axis, keepdim=True)
    apart = (rounded(states, part, name, LAYOUT) - states).abs().view_as(grouped)
    # Scales and least values have 11 bits of their own.
    assert (apart <= span / (2 ** bits_of(name) - 1) / 2 + 4 * 2.0**-10).all()
    assert apart.max() > 0


def test_all_in_full_is_the_model_itself() -> None:
    from gapless.torch.cache.simulated import simulating
    from gapless.torch.heads.models import load_language_model
    from gapless.torch.library import torch

    for name in ("hf:tiny-llama-gqa", "hf:tiny-gpt2"):
        found = load_language_model(name)
        tokens = torch.randint(256, (2, 40), generator=torch.Generator().manual_seed(0))
        first = found.layers[0]
        with torch.no_grad():
            plain = found.model(tokens, use_cache=False).logits
            with simulating(found, [LayerModes.full(first.heads, first.key_heads)] * len(found.layers), LAYOUT):
                made = found.model(tokens, use_cache=False).logits
        assert torch.allclose(made, plain, atol=1e-5)


def test_tokens_change_nothing_before_their_group_is_full() -> None:
    from gapless.torch.cache.simulated import simulating
    from gapless.torch.heads.models import load_language_model
    from gapless.torch.library import torch

    found = load_language_model("hf:tiny-llama")
    tokens = torch.randint(256, (1, 60), generator=torch.Generator().manual_seed(0))
    modes = replace(LayerModes.full(8, 8), keys=("int2",) * 8, values=("int2",) * 8)
    with torch.no_grad():
        plain = found.model(tokens, use_cache=False).logits
        with simulating(found, [modes] * 2, LAYOUT):
            made = found.model(tokens, use_cache=False).logits
    changed = (made - plain).abs().amax(dim=(0, 2)).numpy() > 1e-4
    # A group of 16 is rounded once 16 tokens come after it: from the 32nd token on.
    assert not changed[:31].any()
    assert changed[31:].all()


def test_a_window_hides_what_is_before_it_but_for_the_sinks() -> None:
    from gapless.torch.cache.simulated import visible
    from gapless.torch.library import torch

    seen = visible(20, LAYOUT, 60, torch.tensor([0, 5]))
    at = [set(np.flatnonzero(seen[row, 59].numpy()).tolist()) for row in (0, 1)]
    assert at[0] == {0, 1, *range(32, 60)}
    assert at[1] == {5, 6, *range(32, 60)}
    assert seen[0, 34].all()
