"""Heads clustered for each request: what the cache holds, and logits beside attention written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from extras import needs_transformers

from gapless.errors import InputError

pytestmark = [needs_transformers, pytest.mark.thorough(but=("gqa",))]

FIRST, PROMPT = 5, 14
TEXT = "Each request has a membership of its own, chosen from the scores of its first five tokens alone. " * 3


@pytest.fixture(params=["hf:tiny-llama", "hf:tiny-llama-gqa", "hf:tiny-gpt2", "hf:tiny-opt"])
def found(request: pytest.FixtureRequest) -> Any:
    from gapless.torch.heads.models import load_language_model

    model = load_language_model(request.param)
    model.model.double()
    return model


def prompts(count: int = 3) -> Any:
    import torch

    return torch.tensor(list(TEXT.encode()[: count * PROMPT])).view(count, PROMPT)


def drawn(found: Any, seed: int = 2) -> Any:
    """Another map at each call, with 3 and 2 kept key heads, whatever the distances."""
    rng = np.random.default_rng(seed)

    def choose(distance: np.ndarray) -> Any:
        kept, rows = [], []
        for layer, count in zip(found.layers, (3, 2), strict=True):
            heads = sorted(rng.permutation(layer.key_heads)[:count].tolist())
            group = layer.heads // layer.key_heads
            kept.append(heads)
            rows.append(rng.choice([head for head in range(layer.heads) if head // group in heads], layer.heads))
        return kept, np.array(rows)

    return choose


def written_out(found: Any, tokens: Any, rows: Any) -> Any:
    """The logits of one request, all tokens at once: a head's scores, token by token, are those of the head it uses."""
    import torch

    from gapless.torch.heads.attention import attending

    def function(layer: Any, row: list[int]) -> Any:
        def attend(query: Any, key: Any, value: Any, mask: Any, scaling: float) -> Any:
            group, out = layer.heads // layer.key_heads, torch.zeros_like(query)
            for head in range(layer.heads):
                for at in range(query.shape[2]):
                    used = row[head] if at >= FIRST else head
                    scores = (key[0, used // group, : at + 1] @ query[0, used, at]) * scaling
                    out[0, head, at] = scores.softmax(0) @ value[0, head // group, : at + 1]
            return out.transpose(1, 2), None

        return attend

    functions = [function(layer, row) for layer, row in zip(found.layers, rows, strict=True)]
    with torch.no_grad(), attending(found, functions):
        return found.model(tokens[None], use_cache=False).logits[0, :-1]


def test_logits_are_those_of_attention_written_out_for_each_request(found: Any) -> None:
    import torch

    from gapless.torch.heads.requests import replaced, serve

    served = serve(found, prompts(), drawn(found), FIRST, 3)
    for number, tokens in enumerate(served.tokens):
        rows = [row[number].tolist() for row in served.membership.rows]
        assert torch.allclose(served.logits[number], written_out(found, tokens, rows), atol=1e-9)
        assert torch.equal(served.logits[number].argmax(-1)[PROMPT - 1 :], tokens[PROMPT:])
    assert torch.allclose(replaced(found, served, PROMPT, FIRST), served.logits, atol=1e-9)
    other = serve(found, prompts(), drawn(found, 1), FIRST, 3, served.tokens[:, PROMPT:])
    assert torch.equal(other.logits[:, :FIRST], served.logits[:, :FIRST])
    assert not torch.allclose(other.logits[:, FIRST:], served.logits[:, FIRST:], atol=1e-3)


def test_the_cache_drops_keys_of_each_request_s_own_heads(found: Any) -> None:
    from gapless.torch.heads.requests import serve

    served = serve(found, prompts(), drawn(found), FIRST, 4)
    first = found.layers[0]
    assert served.cache_bytes == (5 + 2 * first.key_heads) * 3 * (PROMPT + 3) * first.dimension * 8
    assert len({tuple(row) for row in served.membership.kept[0].tolist()}) > 1


def test_what_is_kept_are_the_bits_of_the_full_keys(found: Any) -> None:
    import torch

    from gapless.torch.heads.sharing import HeadLayer

    layer, keys = HeadLayer(), torch.randn(2, 8, 5, 4)
    layer.update(keys, keys)
    layer.shrink(torch.tensor([[1, 3], [0, 7]]))
    assert torch.equal(layer.keys, torch.stack([keys[0, [1, 3]], keys[1, [0, 7]]]))
    layer.update(keys[:, :, :1], keys[:, :, :1])
    assert torch.equal(layer.keys[:, :, 5], torch.stack([keys[0, [1, 3], 0], keys[1, [0, 7], 0]]))
    assert torch.equal(layer.values[:, :, :5], keys)


def test_heads_are_chosen_from_the_scores_of_the_first_tokens_alone(found: Any) -> None:
    from gapless.torch.heads.measurement import measure_heads
    from gapless.torch.heads.requests import distances_of, serve

    seen: list[np.ndarray] = []
    choose = drawn(found)

    def watching(distance: np.ndarray) -> Any:
        seen.append(distance.copy())
        return choose(distance)

    serve(found, prompts(), watching, FIRST)
    changed = prompts()
    changed[:, FIRST:] = 7
    serve(found, changed, watching, FIRST)
    assert np.array_equal(seen[:3], seen[3:])
    for number, tokens in enumerate(prompts()):
        alone = measure_heads(found, tokens[None, :FIRST], "a test").scores * FIRST
        assert np.allclose(seen[number], alone, rtol=1e-9)
    whole, later = distances_of(found, prompts(), 0), distances_of(found, prompts(), FIRST)
    assert np.allclose(whole, later + np.array(seen[:3]))


def test_requests_at_once_are_requests_alone(found: Any) -> None:
    import torch

    from gapless.encodings.chai.clusters import clustered_map
    from gapless.torch.heads.requests import serve

    def choose(distance: np.ndarray) -> Any:
        chosen = clustered_map(distance, (3, 2), found.layers[0].key_heads, 50)
        return chosen.kept, chosen.representative

    together = serve(found, prompts(), choose, FIRST, 3)
    for number, tokens in enumerate(prompts()):
        alone = serve(found, tokens[None], choose, FIRST, 3)
        assert torch.equal(alone.tokens[0], together.tokens[number])
        assert torch.allclose(alone.logits[0], together.logits[number], atol=1e-9)


def test_other_counts_and_too_long_contexts_are_refused(found: Any) -> None:
    from gapless.torch.heads.requests import serve

    kept = iter([[[0], [0]], [[0, 1], [0]], [[0], [0]]])
    rows = np.zeros((2, 8), dtype=int)
    with pytest.raises(InputError, match=r"as many heads in layer 0, got \[1, 2\]"):
        serve(found, prompts(), lambda distance: (next(kept), rows), FIRST)
    with pytest.raises(InputError, match=r"must be <= 2048, got 14 \+ 2035"):
        serve(found, prompts(), drawn(found), FIRST, 2035)


def test_the_cache_drops_values_too_where_they_are_shared(found: Any) -> None:
    import torch

    from gapless.torch.heads.requests import replaced, serve

    served = serve(found, prompts(), drawn(found), FIRST, 3, with_values=True)
    assert served.cache_bytes == 2 * 5 * 3 * (PROMPT + 2) * found.layers[0].dimension * 8
    assert torch.allclose(replaced(found, served, PROMPT, FIRST, with_values=True), served.logits, atol=1e-9)
    assert not torch.allclose(replaced(found, served, PROMPT, FIRST), served.logits, atol=1e-3)


def test_blocks_of_queries_are_all_queries_at_once(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from gapless.torch.heads import sharing
    from gapless.torch.heads.requests import serve

    whole = serve(found, prompts(), drawn(found), FIRST, 3)
    monkeypatch.setattr(sharing, "BLOCK", 4)
    assert torch.allclose(serve(found, prompts(), drawn(found), FIRST, 3).logits, whole.logits, atol=1e-9)
    one = drawn(found)(np.zeros(0))
    with torch.no_grad():
        with sharing.sharing(found, *one):
            in_blocks = found.model(prompts(), use_cache=False).logits
        monkeypatch.setattr(sharing, "BLOCK", 128)
        with sharing.sharing(found, *one):
            assert torch.allclose(found.model(prompts(), use_cache=False).logits, in_blocks, atol=1e-9)
