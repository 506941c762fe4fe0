"""Heads whose outputs are dropped: whose, in how many layers, and what the model says without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from extras import needs_transformers

pytestmark = [needs_transformers, pytest.mark.thorough(but=("gqa",))]

FIRST, PROMPT = 5, 14
TEXT = "A head that is dropped adds nothing to its layer's output, and its keys and values stay in the cache. " * 3


@pytest.fixture(params=["hf:tiny-llama-gqa", "hf:tiny-gpt2", "hf:tiny-opt"])
def found(request: pytest.FixtureRequest) -> Any:
    from gapless.torch.heads.models import load_language_model

    model = load_language_model(request.param)
    model.model.double()
    return model


def prompts(count: int = 3) -> Any:
    import torch

    return torch.tensor(list(TEXT.encode()[: count * PROMPT])).view(count, PROMPT)


def whole(found: Any) -> Any:
    """The logits with all heads."""
    import torch

    with torch.no_grad():
        return found.model(prompts(), use_cache=False).logits


def lasts(found: Any) -> list[Any]:
    """The output projections of the layers; each takes the outputs of all heads side by side."""
    names = ("o_proj", "out_proj", "c_proj")
    return [next(getattr(each.module, name) for name in names if hasattr(each.module, name)) for each in found.layers]


def without(found: Any, dropped: np.ndarray, first: int) -> Any:
    """The logits where these heads, (layers, requests, dropped), add nothing from a token on."""

    def drop(module: Any, inputs: Any) -> Any:
        heads = inputs[0].clone().view(3, -1, 8, inputs[0].shape[-1] // 8)
        for request, gone in enumerate(dropped[lasts(found).index(module)]):
            heads[request, first:, gone.tolist()] = 0
        return (heads.view(*inputs[0].shape),)

    hooks = [last.register_forward_pre_hook(drop) for last in lasts(found)]
    logits = whole(found)
    for hook in hooks:
        hook.remove()
    return logits


def test_with_all_heads_nothing_changes(found: Any) -> None:
    import torch

    from gapless.torch.heads.dropping import HeadPredictor, serve_predicted, serve_pruned

    predictor = HeadPredictor.of(found, prompts())
    pruned = serve_pruned(found, prompts(), [8, 8], FIRST)
    predicted = serve_predicted(found, prompts(), predictor, [8, 8], FIRST)
    for served in (pruned, predicted):
        assert torch.allclose(served.logits, whole(found), atol=1e-5)


def test_the_heads_with_the_least_outputs_so_far_add_nothing(found: Any) -> None:
    """What a layer drops, the next one drops too."""
    import torch

    from gapless.torch.heads.dropping import serve_pruned

    sizes: list[np.ndarray] = []

    def see(module: Any, inputs: Any) -> None:
        heads = inputs[0].reshape(3, PROMPT, 8, inputs[0].shape[-1] // 8)
        sizes.append(heads[:, :FIRST].abs().sum(dim=(1, 3)).numpy())

    hooks = [last.register_forward_pre_hook(see) for last in lasts(found)]
    whole(found)
    for hook in hooks:
        hook.remove()
    early = np.argsort(sizes[0], axis=1)[:, :2]
    so_far = sizes[0] + sizes[1]
    np.put_along_axis(so_far, early, -1.0, axis=1)
    late = np.argsort(so_far, axis=1)[:, :5]
    served = serve_pruned(found, prompts(), [6, 3], FIRST)
    dropped = np.array([np.concatenate([early, early[:, :1], early[:, :1], early[:, :1]], axis=1), late])
    assert torch.allclose(served.logits, without(found, dropped, FIRST), atol=1e-5)
    assert not torch.allclose(served.logits, whole(found), atol=1e-2)


def test_the_heads_that_are_predicted_to_add_least_add_nothing(found: Any) -> None:
    import torch

    from gapless.torch.heads.dropping import HeadPredictor, serve_predicted

    inputs: list[Any] = []
    outputs: list[Any] = []
    predictor = HeadPredictor.of(found, prompts())
    first = found.layers[0].module
    hooks = [
        lasts(found)[0].register_forward_pre_hook(lambda module, values: outputs.append(values[0].double())),
        first.register_forward_pre_hook(
            lambda module, values, named: inputs.append(named.get("hidden_states", *values)), with_kwargs=True
        ),
    ]
    whole(found)
    for hook in hooks:
        hook.remove()
    scores = predictor.scores(0, inputs[0])
    heads = outputs[0].view(3, PROMPT, 8, -1)
    added = torch.einsum("rthd,hdm->rthm", heads, found.layers[0].output).square().sum(dim=-1).log()
    assert np.corrcoef(scores.flatten(), added.detach().flatten())[0, 1] > 0.5
    least = scores.argmin(dim=-1)[:, FIRST:, None, None]

    def drop(module: Any, values: Any) -> Any:
        kept = values[0].clone().view(3, PROMPT, 8, -1)
        kept[:, FIRST:] = kept[:, FIRST:].scatter(2, least.expand(-1, -1, 1, kept.shape[3]), 0.0)
        return (kept.view(*values[0].shape),)

    hook = lasts(found)[0].register_forward_pre_hook(drop)
    expected = whole(found)
    hook.remove()
    served = serve_predicted(found, prompts(), predictor, [7, 8], FIRST)
    assert torch.allclose(served.logits, expected, atol=1e-5)
    assert not torch.allclose(served.logits, whole(found), atol=1e-3)
