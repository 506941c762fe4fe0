"""A small GPT on sentences of a random Markov chain, which it can learn: to train in seconds."""

from __future__ import annotations

from typing import Any

import torch

from gapless.torch.pipeline.gpt import gpt

NEXT = 4
"""Tokens that may follow a token, the first four times as often as the last."""


def language(
    sentences: int = 800, layers: int = 2, hidden: int = 32, heads: int = 4, vocabulary: int = 64, sequence: int = 24
) -> tuple[Any, Any, Any, Any]:
    """The model, sentences, the loss, and the tokens to guess; the chain, too, is that of the seed."""
    model, _, loss, _ = gpt(layers, hidden, heads, vocabulary, sequence)
    followers = torch.stack([torch.randperm(vocabulary)[:NEXT] for _ in range(vocabulary)])
    shares = torch.tensor([0.4, 0.3, 0.2, 0.1]).expand(vocabulary, -1)
    tokens = torch.randint(vocabulary, (sentences, 1))
    for _ in range(sequence):
        last = tokens[:, -1]
        chosen = torch.multinomial(shares[last], 1)
        tokens = torch.cat([tokens, followers[last].gather(1, chosen)], 1)
    return model, tokens[:, :-1].contiguous(), loss, tokens[:, 1:].contiguous()
