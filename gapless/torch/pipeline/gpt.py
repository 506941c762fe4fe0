"""A small GPT as a sequence of layers, to try pipelines on: embedding, blocks, head."""

from __future__ import annotations

from collections.abc import Callable

from gapless.errors import InputError
from gapless.torch.library import Module, Tensor, torch

__all__ = ["gpt"]

nn, functional = torch.nn, torch.nn.functional


class Embedding(Module):  # type: ignore[misc,unused-ignore]
    """Tokens and their positions."""

    def __init__(self, vocabulary: int, sequence: int, hidden: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, hidden)
        self.position = nn.Embedding(sequence, hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.token(tokens) + self.position.weight[: tokens.shape[1]]


class Block(Module):  # type: ignore[misc,unused-ignore]
    """Causal attention and a perceptron, each after a layer norm and beside a residual connection."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, inputs: Tensor) -> Tensor:
        batch, sequence, hidden = inputs.shape
        mixed = self.attention(self.norm1(inputs)).view(batch, sequence, 3, self.heads, hidden // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind()
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        inputs = inputs + self.projection(attended.transpose(1, 2).reshape(batch, sequence, hidden))
        return inputs + self.narrow(functional.gelu(self.widen(self.norm2(inputs))))


class Head(Module):  # type: ignore[misc,unused-ignore]
    """The scores of all tokens."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.norm, self.scores = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scores(self.norm(inputs))


def gpt(
    layers: int = 4, hidden: int = 64, heads: int = 4, vocabulary: int = 128, sequence: int = 32, micro_batch: int = 1,
    micro_batches: int = 1, tied: int = 0,
) -> tuple[Module, Tensor, Callable[[Tensor, Tensor], Tensor], Tensor]:  # fmt: skip
    """The model, random tokens for `micro_batches` times `micro_batch` sequences, the loss, and the tokens to guess.

    Under any seed, each token has the same few that may come next. `tied`: 1 where the head's weights are the
    embedding's. Raises `InputError` where heads don't divide what is hidden.
    """
    if hidden % heads:
        raise InputError(f"model: hidden must be a multiple of {heads} heads, got {hidden}")
    blocks = {f"layer{number}": Block(hidden, heads) for number in range(1, layers + 1)}
    model = nn.Sequential()
    for name, layer in {"embedding": Embedding(vocabulary, sequence, hidden), **blocks}.items():
        model.add_module(name, layer)
    head = Head(vocabulary, hidden)
    model.add_module("head", head)
    if tied:
        head.scores.weight = model.get_submodule("embedding").token.weight
        torch.nn.init.normal_(head.scores.weight, std=hidden**-0.5)  # as large as scores need it
    tokens = _text(micro_batches * micro_batch, sequence + 1, vocabulary)
    return model, tokens[:, :-1].contiguous(), _loss, tokens[:, 1:].contiguous()


def _text(count: int, length: int, vocabulary: int) -> Tensor:
    """Sequences in which each token is one of four that may follow the one before."""
    following = torch.randint(vocabulary, (vocabulary, 4), generator=torch.Generator().manual_seed(0))
    tokens = torch.randint(vocabulary, (count, length))
    for place in range(1, length):
        tokens[:, place] = following[tokens[:, place - 1], torch.randint(4, (count,))]
    return tokens


def _loss(scores: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
