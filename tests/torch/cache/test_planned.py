"""The cache that stores what a plan says: logits of the simulation, bytes of the plan, `generate` with padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from extras import needs_transformers

from gapless.errors import InputError
from gapless.profiles.cache.layout import FORMATS, FULL, Layout
from gapless.profiles.cache.modes import LayerModes

pytestmark = needs_transformers

SHAPE = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
    "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
MODELS = {
    "hf:tiny-llama": None,
    "hf:tiny-llama-gqa": None,
    "hf:tiny-gpt2": None,
    "hf:tiny-opt": None,
    "qwen": ("Qwen2Config", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", {"num_key_value_heads": 4, "head_dim": 8}),
    "mistral": ("MistralConfig", {"num_key_value_heads": 4, "sliding_window": None}),
}


def model_of(name: str, folder: Any) -> Any:
    from gapless.torch.heads.models import load_language_model, transformers
    from gapless.torch.library import torch

    made = MODELS[name]
    if made is None:
        return load_language_model(name)
    torch.manual_seed(0)
    config = getattr(transformers, made[0])(**SHAPE, **made[1], initializer_range=0.2)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return load_language_model(str(folder))


def drawn_modes(found: Any, seed: int, windows: Sequence[int] = (0, 20, 32)) -> list[LayerModes]:
    rng, modes = np.random.default_rng(seed), []
    first = found.layers[0]
    heads, key_heads = first.heads, first.key_heads
    group = heads // key_heads
    for _ in found.layers:
        full = LayerModes.full(heads, key_heads)
        keys, values = (tuple(rng.choice(FORMATS, key_heads).tolist()) for _ in range(2))
        each = LayerModes(int(rng.choice(windows)), keys, values, full.representatives)
        if rng.random() < 0.5 and key_heads > 1:
            kept = tuple(sorted(rng.permutation(key_heads)[: key_heads // 2].tolist()))
            rows = [head if head // group in kept else int(rng.choice(kept)) * group for head in range(heads)]
            each = each.sharing(kept, tuple(rows))
        modes.append(each)
    return modes


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(2))
def test_token_by_token_gives_the_logits_of_the_simulation_and_the_bytes_of_the_plan(
    name: str, seed: int, tmp_path: Any
) -> None:
    from gapless.torch.cache.planned import planned_cache
    from gapless.torch.cache.simulated import simulating
    from gapless.torch.heads.models import cached_logits
    from gapless.torch.library import torch

    found, layout = model_of(name, tmp_path), Layout(8, 16, 12, 3)
    modes = drawn_modes(found, seed)
    tokens = torch.randint(256, (2, 90), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad(), simulating(found, modes, layout):
        whole = found.model(tokens, use_cache=False).logits
    with torch.no_grad(), planned_cache(found, modes, layout) as cache:
        parts = [cached_logits(found.model, tokens[:, :37], cache)]
        for first, end in [(37, 40), *((at, at + 1) for at in range(40, 90))]:
            parts.append(cached_logits(found.model, tokens[:, first:end], cache))
            assert cache.size_bytes == 2 * sum(each.cache_bytes(layout, end, 4) for each in modes)
    assert float((torch.cat(parts, dim=1) - whole).abs().max()) <= 2e-4 * max(1.0, float(whole.abs().max()))


def test_half_precision_takes_half_the_bytes_of_full_numbers_and_as_many_of_packed_ones() -> None:
    from gapless.torch.cache.planned import planned_cache
    from gapless.torch.heads.models import cached_logits, load_language_model
    from gapless.torch.library import torch

    found, layout = load_language_model("hf:tiny-llama", dtype="bfloat16"), Layout(8, 16, 12, 3)
    modes = drawn_modes(found, 5)
    tokens = torch.randint(256, (1, 50), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), planned_cache(found, modes, layout) as cache:
        cached_logits(found.model, tokens, cache)
        assert cached_logits(found.model, tokens[:, :1], cache).isfinite().all()
    assert cache.size_bytes == sum(each.cache_bytes(layout, 51, 2) for each in modes)


@pytest.mark.parametrize("name", ["hf:tiny-llama-gqa", "hf:tiny-gpt2"])
def test_generate_gives_a_padded_prompt_the_tokens_that_it_has_alone(name: str, tmp_path: Any) -> None:
    """In windows and in full: a group's scales see what is padded, so that few bits may round otherwise."""
    from gapless.torch.cache.planned import planned_cache
    from gapless.torch.heads.models import cache_argument
    from gapless.torch.library import torch

    found, layout = model_of(name, tmp_path), Layout(8, 16, 16, 3)
    first = found.layers[0]
    full = LayerModes.full(first.heads, first.key_heads)
    modes = [LayerModes(window, full.keys, full.values, full.representatives) for window in (32, 0)]
    tokens = torch.randint(1, 256, (2, 40), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    tokens[1, :16], mask[1, :16] = 0, 0

    def generated(rows: Any, shown: Any) -> Any:
        with planned_cache(found, modes, layout) as cache:
            return found.model.generate(
                rows,
                attention_mask=shown,
                max_new_tokens=40,
                do_sample=False,
                pad_token_id=0,
                **{cache_argument(found.model): cache},
            )[:, rows.shape[1] :]

    both = generated(tokens, mask)
    assert both[0].tolist() == generated(tokens[:1], mask[:1])[0].tolist()
    assert both[1].tolist() == generated(tokens[1:, 16:], mask[1:, 16:])[0].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_padding_changes_no_scale(seed: int) -> None:
    """A padded sequence has the logits of one pass over it, whose padding sees other tokens, and other bits."""
    from gapless.torch.cache.generation import compare
    from gapless.torch.heads.models import load_language_model
    from gapless.torch.library import torch

    found, layout = load_language_model("hf:tiny-llama-gqa"), Layout(8, 16, 12, 3)
    prompts = torch.randint(256, (3, 40), generator=torch.Generator().manual_seed(seed))
    made = compare(found, drawn_modes(found, seed), layout, prompts, 30)
    assert made.logit_difference <= 2e-4 * max(1.0, made.largest_logit)


def test_beams_run_on_a_planned_cache() -> None:
    from gapless.torch.cache.planned import planned_cache
    from gapless.torch.heads.models import cache_argument, load_language_model
    from gapless.torch.library import torch

    found, layout = load_language_model("hf:tiny-llama"), Layout(8, 16, 16, 3)
    tokens = torch.randint(1, 256, (2, 40), generator=torch.Generator().manual_seed(1))
    with planned_cache(found, drawn_modes(found, 1), layout) as cache:
        made = found.model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=20, num_beams=3,
            do_sample=False, pad_token_id=0, **{cache_argument(found.model): cache},
        )  # fmt: skip
    assert made.shape == (2, 60)


def test_loops_and_arrays_give_the_same_products(monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.torch.cache import packing
    from gapless.torch.library import torch

    draw = torch.Generator().manual_seed(0)
    for name in FORMATS[1:]:
        codes = torch.randint(2 ** int(name[3:]), (2, 32, 24), dtype=torch.uint8, generator=draw)
        planes = packing.planes_of(name)
        assert torch.equal(
            sum(packing.unpacked(packing.packed(codes, *plane), *plane) for plane in planes), codes.to(torch.uint8)
        )
        scaled, shares = torch.randn(1, 3, 3, 2, 24, generator=draw), torch.rand(1, 3, 3, 32, 3, generator=draw)
        found = []
        for is_here in (True, False):
            monkeypatch.setattr(packing, "is_numba_here", lambda is_here=is_here: is_here)
            scores, sums = torch.zeros(1, 3, 3, 2, 16), torch.zeros(1, 3, 3, 24)
            for plane in planes:  # of the last two of three heads
                made = packing.packed(codes, *plane)[None]
                grouped = made.unflatten(2, (2, 16)).transpose(3, 4).contiguous()
                packing.add_scores(grouped, scaled, scores, 1, *plane)
                packing.add_values(made, shares, sums, 1, *plane)
            found.append((scores, sums))
        for one, other in zip(*found, strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-3)


def test_a_plan_of_another_model_is_refused() -> None:
    from gapless.torch.cache.planned import planned_cache
    from gapless.torch.heads.models import load_language_model

    found = load_language_model("hf:tiny-llama")
    with (
        pytest.raises(InputError, match="must be of the model's 2 layers"),
        planned_cache(found, [LayerModes.full(8, 4)] * 2, Layout(8)),
    ):
        pass
    assert FULL == "full"
