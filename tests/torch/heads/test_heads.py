"""Heads of transformers' models: distances, shared attention, the cache of kept keys, swaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from extras import needs_transformers

from gapless.errors import InputError

pytestmark = needs_transformers

MODELS = ("hf:tiny-llama", "hf:tiny-llama-gqa", "hf:tiny-gpt2", "hf:tiny-opt")
TEXT = "What is saved of a cache is what it need not hold: keys of heads that share one head's attention. " * 6


@pytest.fixture(params=MODELS)
def found(request: pytest.FixtureRequest) -> Any:
    from gapless.torch.heads.models import load_language_model

    return load_language_model(request.param)


def tokens(count: int, length: int) -> Any:
    import torch

    return torch.tensor(list(TEXT.encode()[: count * length])).view(count, length)


def some_map(found: Any, seed: int = 1) -> tuple[list[list[int]], np.ndarray]:
    """Some key heads of each layer, and for each head some query head that they serve."""
    rng = np.random.default_rng(seed)
    kept, rows = [], []
    for layer in found.layers:
        heads = sorted(rng.permutation(layer.key_heads)[: 1 + layer.key_heads // 2].tolist())
        group = layer.heads // layer.key_heads
        offered = [head for head in range(layer.heads) if head // group in heads]
        kept.append(heads)
        rows.append(rng.choice(offered, layer.heads))
    return kept, np.array(rows)


def test_shared_heads_give_the_logits_of_copied_rows(found: Any) -> None:
    import torch

    from gapless.torch.heads.generation import compare

    kept, rows = some_map(found)
    result = compare(found, kept, rows, tokens(1, 40)[0], 6, tokens(2, 32))
    assert result.logit_difference <= 1e-6 * result.largest_logit
    assert not torch.equal(result.shared.logits[0], result.full.logits[0])
    with torch.no_grad():  # at once, without a cache
        plain = found.model(tokens(1, 40), use_cache=False).logits[0, -1]
    assert torch.allclose(plain, result.full.logits[0], atol=1e-5)


def test_the_cache_holds_kept_keys_and_all_values(found: Any) -> None:
    from gapless.torch.heads.generation import generated
    from gapless.torch.heads.sharing import kept_cache, sharing

    kept, rows = some_map(found)
    first = found.layers[0]
    with sharing(found, kept, rows):
        result = generated(found.model, kept_cache(kept), tokens(1, 20)[0], 5)
    heads = sum(map(len, kept)) + len(found.layers) * first.key_heads
    assert result.cache_bytes == heads * 24 * first.dimension * 4


def test_one_step_at_a_time_is_all_at_once(found: Any) -> None:
    import torch

    from gapless.torch.heads.models import cached_logits
    from gapless.torch.heads.sharing import kept_cache, sharing

    kept, rows = some_map(found)
    text = tokens(1, 12)
    with torch.no_grad(), sharing(found, kept, rows):
        cache = kept_cache(kept)
        steps = [cached_logits(found.model, text[:, k : k + 1], cache)[0, -1] for k in range(12)]
        whole = found.model(text, use_cache=False).logits[0]
    assert torch.allclose(torch.stack(steps), whole, atol=2e-5)


def test_distances_are_what_one_head_changes(found: Any) -> None:
    """The distance to another head's attention is the squared change of the first layer's attention output."""
    import torch

    from gapless.torch.heads.measurement import measure_heads
    from gapless.torch.heads.sharing import sharing

    text = tokens(2, 24)
    profile = measure_heads(found, text, "a test")
    first = found.layers[0]
    kept = [range(first.key_heads)] * len(found.layers)
    same = np.tile(np.arange(first.heads), (len(found.layers), 1))

    def output(rows: np.ndarray) -> Any:
        seen: list[Any] = []
        hook = first.module.register_forward_hook(lambda module, inputs, result: seen.append(result[0]))
        with torch.no_grad(), sharing(found, kept, rows):
            found.model(text, use_cache=False)
        hook.remove()
        return seen[0].double()

    for head, other in ((0, 3), (5, 2), (7, 1)):
        rows = same.copy()
        rows[0, head] = other
        change = float((output(rows) - output(same)).square().sum()) / text.numel()
        assert profile.output[0, head, other] == pytest.approx(change, rel=1e-4)
    assert (profile.parameters, profile.tokens) == (sum(p.numel() for p in found.model.parameters()), 48)
    assert np.allclose(profile.scores, profile.scores.transpose(0, 2, 1))


def test_measuring_leaves_the_model_as_it_was(found: Any) -> None:
    import torch

    from gapless.torch.heads.measurement import measure_heads

    text = tokens(1, 16)
    with torch.no_grad():
        before = found.model(text).logits
        measure_heads(found, text, "a test")
        assert torch.equal(found.model(text).logits, before)
    assert not hasattr(found.layers[0].module, "gapless_attention")


def test_a_function_without_its_mask_function_would_see_the_future(found: Any) -> None:
    """What `attending` guards against: without a mask, scores of later tokens count too."""
    import torch

    from gapless.torch.heads.attention import attending, probabilities, repeated

    masks: list[Any] = []

    def attend(query: Any, key: Any, value: Any, mask: Any, scaling: float) -> Any:
        masks.append(mask)
        times = query.shape[1] // key.shape[1]
        attention = probabilities(query, repeated(key, times), mask, scaling)
        return torch.matmul(attention, repeated(value, times)).transpose(1, 2), None

    text = tokens(1, 16)
    with torch.no_grad():
        before = found.model(text).logits
        with attending(found, [attend] * len(found.layers)):
            assert torch.allclose(found.model(text).logits, before, atol=1e-5)
    assert all(mask is not None and float(mask[0, 0, 0, 1]) < -1e30 for mask in masks)


def test_swaps_lower_the_loss_and_keep_the_bytes(found: Any) -> None:
    from gapless.profiles.heads.profile import nearest
    from gapless.torch.heads.measurement import measure_heads
    from gapless.torch.heads.swaps import swapped

    text = tokens(2, 32)
    profile = measure_heads(found, text, "a test")
    kept = tuple(tuple(heads) for heads in some_map(found)[0])

    def row_of(layer: int, heads: Any) -> tuple[np.ndarray, float]:
        row = nearest(profile.output[layer], heads, profile.group)
        return row, float(profile.output[layer, range(profile.heads), row].sum())

    result = swapped(found, kept, profile.key_heads, row_of, text, 12, lambda: False)
    assert result.tried == 12
    assert (result.loss_after < result.loss_before) == (result.made > 0)
    assert sum(map(len, result.kept)) == sum(map(len, kept))
    assert min(map(len, result.kept)) >= 1
    stopped = swapped(found, kept, profile.key_heads, row_of, text, 12, lambda: True)
    assert (stopped.kept, stopped.tried) == (kept, 0)


@pytest.mark.thorough(but=("gqa",))
def test_rises_are_those_of_one_layer_alone(found: Any) -> None:
    from gapless.encodings.chai.commands.profile import rises_of
    from gapless.encodings.chai.head_map import HeadMap
    from gapless.options import SolveOptions
    from gapless.torch.heads.measurement import measure_heads
    from gapless.torch.heads.models import mean_loss
    from gapless.torch.heads.sharing import sharing

    text = tokens(2, 32)
    profile = measure_heads(found, text, "a test")
    loss, rises = rises_of(found, profile, text, SolveOptions())
    assert loss == pytest.approx(mean_loss(found.model, text), rel=1e-5)
    assert rises is not None
    assert rises.loss.shape == (profile.layers, profile.key_heads)
    assert rises.is_measured.all()
    heads = [list(range(profile.key_heads)), list(rises.heads(1)[1])]
    chosen = HeadMap.of(heads, profile, "output")
    with sharing(found, chosen.kept, chosen.representative):
        assert rises.loss[1, 1] == pytest.approx(max(mean_loss(found.model, text) - loss, 0.0), abs=1e-6)
    stopped = SolveOptions()
    stopped.stop.set()
    assert rises_of(found, profile, text, stopped) == (loss, None)


def test_when_stopped_the_rises_that_are_measured_are_kept(found: Any) -> None:
    from gapless.torch.heads.measurement import measured_rises

    left = iter([False] * 3 + [True])
    whole = [list(range(each.heads)) for each in found.layers]

    def map_of(layer: int, count: int) -> tuple[list[int], list[int]]:
        return list(range(found.layers[layer].key_heads)), whole[layer]

    _, rises = measured_rises(found, map_of, [1, 3], tokens(1, 16), lambda: next(left))
    measured = ~np.isnan(rises)
    assert (len(rises), measured[:, 0].tolist(), measured[:, 2].tolist()) == (2, [True, True], [True, False])
    assert (rises[measured] == 0).all()  # every head keeps its own


def test_a_seed_gives_the_same_weights() -> None:
    import torch

    from gapless.torch.heads.models import load_language_model

    first, again, other = (load_language_model("hf:tiny-gpt2", seed).model for seed in (1, 1, 2))
    weights = [next(iter(model.parameters())) for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("model", ["hf:tiny-llama", "hf:tiny-opt"])
def test_a_saved_model_is_read_from_its_folder(tmp_path: Any, model: str) -> None:
    import torch

    from gapless.torch.heads.models import load_language_model

    before = load_language_model(model)
    before.model.save_pretrained(tmp_path)
    for name in (str(tmp_path), f"hf:{tmp_path}"):
        with torch.no_grad():
            assert torch.equal(load_language_model(name).model(tokens(1, 9)).logits, before.model(tokens(1, 9)).logits)


def test_models_of_other_kinds_are_refused(tmp_path: Any) -> None:
    import transformers

    from gapless.torch.heads.models import load_language_model

    config = transformers.BloomConfig(vocab_size=256, hidden_size=16, n_layer=1, n_head=2)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="is of the kind bloom; heads of Llama, OPT, GPT-2"):
        load_language_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="is not readable as a saved model"):
        load_language_model(str(tmp_path))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_halves_the_cache(dtype: str) -> None:
    import torch

    from gapless.torch.heads.generation import compare
    from gapless.torch.heads.models import load_language_model
    from gapless.torch.heads.requests import replaced, serve

    model = load_language_model("hf:tiny-opt", 0, "cpu", dtype)
    kept, rows = some_map(model)
    result = compare(model, kept, rows, tokens(1, 20)[0], 4, tokens(2, 24))
    assert result.full.cache_bytes == 2 * 2 * 8 * 23 * 8 * 2  # keys, values; layers; heads; tokens; dimension; bytes
    assert result.logit_difference <= 8 * torch.finfo(getattr(torch, dtype)).eps * result.largest_logit
    served = serve(model, tokens(2, 20), lambda distance: (kept, rows), 5, 3)
    assert served.cache_bytes == (10 + 16) * 2 * 22 * 8 * 2
    assert torch.equal(replaced(model, served, 20, 5), served.logits)


@pytest.mark.parametrize("device", ["cpu:x", "meta", "gpu"])
def test_devices_that_are_none_are_refused(device: str) -> None:
    from gapless.torch.heads.models import load_language_model

    with pytest.raises(InputError, match=f"device: must be cpu, cuda or cuda:N, got '{device}'"):
        load_language_model("hf:tiny-opt", 0, device)


def test_a_cuda_device_that_is_not_here_is_refused() -> None:
    import torch

    from gapless.torch.heads.models import load_language_model

    with pytest.raises(InputError, match=f"PyTorch sees {torch.cuda.device_count()} CUDA devices; take cpu"):
        load_language_model("hf:tiny-opt", 0, "cuda:100")
