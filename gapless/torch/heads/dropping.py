"""Heads whose outputs are dropped, to be held against heads that share: after SpAtten and Deja Vu. Needs `hf`.

Both attend to a request's first tokens with all heads. SpAtten then drops heads by the sum of their outputs' sizes over
these tokens and all layers so far; a head that one layer drops, later ones drop too. Deja Vu drops heads for each token
and layer by a predictor of how much they add, from the layer's input. All keys and values stay cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from gapless.torch.heads.attention import AttentionFunction, attending, probabilities, repeated
from gapless.torch.heads.models import Attention, LanguageModel
from gapless.torch.heads.requests import Answered, answered
from gapless.torch.library import Module, Tensor, torch

__all__ = ["HeadPredictor", "serve_predicted", "serve_pruned"]

_RIDGE = 1e-3
"""Of the predictors' regression, relative to the mean square of the inputs."""


def serve_pruned(
    found: LanguageModel, prompts: Tensor, counts: Sequence[int], first: int, new_tokens: int = 1
) -> Answered:
    """Answer prompts, (requests, tokens), with `counts[l]` heads in layer l, which must not grow from layer to layer.

    Which heads: those with the largest outputs so far, as SpAtten counts them, among those of the layer before.
    """
    sizes = [torch.zeros(len(prompts), layer.heads, device=prompts.device) for layer in found.layers]

    def prune() -> list[AttentionFunction]:
        so_far, left = torch.zeros_like(sizes[0]), torch.ones_like(sizes[0], dtype=torch.bool)
        functions: list[AttentionFunction] = []
        for size, count in zip(sizes, counts, strict=True):
            so_far = so_far + size
            left = _largest(so_far.masked_fill(~left, -1.0), count)
            functions.append(partial(_attend, left[:, None, :, None]))
        return functions

    return answered(found, prompts, [partial(_size, size) for size in sizes], prune, first, new_tokens)


def _largest(scores: Tensor, count: int) -> Tensor:
    """Whether each score is among so many largest of its row."""
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, scores.topk(count, dim=-1).indices, value=True)


def _outputs(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """Of all heads, (requests, tokens, heads, dimension)."""
    times = query.shape[1] // key.shape[1]
    attention = probabilities(query, repeated(key, times), mask, scaling)
    return torch.matmul(attention, repeated(value, times)).transpose(1, 2).contiguous()


def _size(
    sizes: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, None]:
    """Attend by all heads, and add the absolute values of their outputs, (requests, heads)."""
    outputs = _outputs(query, key, value, mask, scaling)
    sizes += outputs.abs().sum(dim=(1, 3))
    return outputs, None


def _attend(
    left: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, None]:
    return _outputs(query, key, value, mask, scaling) * left, None


@dataclass(frozen=True)
class HeadPredictor:
    """By layer: weights, (model + 1, heads), by which a layer's input says the logarithm of the squared size of what a
    head adds to the output; the last row is constant.
    """

    weights: tuple[Tensor, ...]

    @classmethod
    def of(cls, found: LanguageModel, sequences: Tensor) -> HeadPredictor:
        """Fitted by least squares to sequences, (count, length), with all heads."""
        width = found.layers[0].output.shape[2] + 1
        squares = [torch.zeros(width, width, dtype=torch.float64, device=found.device) for _ in found.layers]
        products = [torch.zeros(width, layer.heads, dtype=torch.float64, device=found.device) for layer in found.layers]
        with torch.no_grad(), _inputs(found) as inputs:
            functions = [
                partial(_fit, layer, inputs, squares[at], products[at]) for at, layer in enumerate(found.layers)
            ]
            with attending(found, functions):
                for sequence in sequences:
                    found.model(sequence[None], use_cache=False)
        ridge = torch.eye(width, dtype=torch.float64, device=found.device)
        return cls(tuple(
            torch.linalg.solve(square + _RIDGE * square.diagonal().mean() * ridge, product)
            for square, product in zip(squares, products, strict=True)
        ))  # fmt: skip

    def scores(self, layer: int, hidden: Tensor) -> Tensor:
        """Of each token, (requests, tokens, model), and each head."""
        return _with_one(hidden) @ self.weights[layer]


def serve_predicted(
    found: LanguageModel, prompts: Tensor, predictor: HeadPredictor, counts: Sequence[int], first: int,
    new_tokens: int = 1,
) -> Answered:  # fmt: skip
    """Answer prompts, (requests, tokens), with the `counts[l]` heads of layer l that are predicted to add most to each
    token.
    """
    with _inputs(found) as inputs:

        def drop() -> list[AttentionFunction]:
            return [partial(_predicted, predictor, inputs, at, count) for at, count in enumerate(counts)]

        whole = [partial(_attend, torch.ones((), device=prompts.device, dtype=found.model.dtype))] * len(found.layers)
        return answered(found, prompts, whole, drop, first, new_tokens)


def _predicted(
    predictor: HeadPredictor, inputs: Mapping[int, Tensor], at: int, count: int, query: Tensor, key: Tensor,
    value: Tensor, mask: Tensor | None, scaling: float,
) -> tuple[Tensor, None]:  # fmt: skip
    left = _largest(predictor.scores(at, inputs[at]), count)
    return _attend(left[..., None], query, key, value, mask, scaling)


def _fit(
    layer: Attention, inputs: Mapping[int, Tensor], squares: Tensor, products: Tensor, query: Tensor, key: Tensor,
    value: Tensor, mask: Tensor | None, scaling: float,
) -> tuple[Tensor, None]:  # fmt: skip
    outputs = _outputs(query, key, value, mask, scaling)
    added = torch.einsum("rthd,hdm->rthm", outputs.double(), layer.output.double()).square().sum(dim=-1)
    hidden = _with_one(inputs[int(layer.module.layer_idx)]).flatten(0, 1)
    squares += hidden.T @ hidden
    products += hidden.T @ added.clamp(min=torch.finfo(torch.float32).tiny).log().flatten(0, 1)
    return outputs, None


def _with_one(hidden: Tensor) -> Tensor:
    return torch.cat([hidden.double(), torch.ones_like(hidden[..., :1], dtype=torch.float64)], dim=-1)


@contextmanager
def _inputs(found: LanguageModel) -> Iterator[Mapping[int, Tensor]]:
    """Within the block, the latest input of each layer's attention, by layer."""
    seen: dict[int, Tensor] = {}

    def see(module: Module, values: tuple[Tensor, ...], named: Mapping[str, Tensor]) -> None:
        seen[int(module.layer_idx)] = named["hidden_states"] if "hidden_states" in named else values[0]

    hooks = [layer.module.register_forward_pre_hook(see, with_kwargs=True) for layer in found.layers]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
