"""Transformers of twelve layers: BERT (base) and GPT-2 (small).

Operators that a framework runs as views (splitting heads, transposing) make no nodes; scaling and masking of attention
scores belong to the softmax.
"""

from __future__ import annotations

from planwright.errors import InputError
from planwright.profiles import layers
from planwright.profiles.building import NetworkBuilder, Value

__all__ = ["bert_base", "gpt2_small"]

_LAYERS = 12
_HEADS = 12
_FEATURES = 768
_HIDDEN = 4 * _FEATURES
_TOKEN_BYTES = 8

_BERT_VOCABULARY, _BERT_POSITIONS, _BERT_SEGMENTS = 30522, 512, 2
_GPT2_VOCABULARY, _GPT2_POSITIONS = 50257, 1024


def bert_base(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """BERT with its pooler, as it is fine-tuned for a task on whole sequences; normalisation behind each sum."""
    tokens, segments = (_token_input(net, size, _BERT_POSITIONS) for _ in range(2))
    x = layers.add(
        net,
        layers.embedding(net, tokens, _BERT_VOCABULARY, _FEATURES),
        layers.embedding(net, tokens, _BERT_POSITIONS, _FEATURES),
        layers.embedding(net, segments, _BERT_SEGMENTS, _FEATURES),
    )
    x = layers.dropout(net, layers.layer_norm(net, x), keep_mask=True)
    for _ in range(_LAYERS):
        x = layers.layer_norm(net, layers.add(net, _attention(net, x), x))
        x = layers.layer_norm(net, layers.add(net, _feed_forward(net, x), x))
    return [layers.tanh(net, layers.linear(net, layers.first_position(net, x), _FEATURES))]


def gpt2_small(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """GPT-2 with its language model head, tied to the table of tokens; normalisation before each block."""
    tokens = _token_input(net, size, _GPT2_POSITIONS)
    x = layers.add(
        net,
        layers.embedding(net, tokens, _GPT2_VOCABULARY, _FEATURES, tied=True),
        layers.embedding(net, tokens, _GPT2_POSITIONS, _FEATURES),
    )
    x = layers.dropout(net, x, keep_mask=True)
    for _ in range(_LAYERS):
        x = layers.add(net, x, _attention(net, layers.layer_norm(net, x)))
        x = layers.add(net, x, _feed_forward(net, layers.layer_norm(net, x)))
    x = layers.layer_norm(net, x)
    return [layers.linear(net, x, _GPT2_VOCABULARY, bias=False, tied=True)]


def _token_input(net: NetworkBuilder, size: tuple[int, ...], limit: int) -> Value:
    if size[0] > limit:
        raise InputError(f"network {net.name!r}: input_size must be at most {limit} tokens, got {size[0]}")
    return net.input(*size, element_bytes=_TOKEN_BYTES)


def _attention(net: NetworkBuilder, x: Value) -> Value:
    batch, tokens, features = x.shape
    split = (batch, _HEADS, tokens, features // _HEADS)
    query, key, value = (layers.linear(net, x, features).viewed(*split) for _ in range(3))
    weights = layers.softmax(net, layers.matmul(net, query, key, transposed=True))
    mixed = layers.matmul(net, layers.dropout(net, weights, keep_mask=True), value)
    out = layers.linear(net, mixed.viewed(batch, tokens, features), features)
    return layers.dropout(net, out, keep_mask=True)


def _feed_forward(net: NetworkBuilder, x: Value) -> Value:
    out = layers.linear(net, layers.gelu(net, layers.linear(net, x, _HIDDEN)), x.shape[-1])
    return layers.dropout(net, out, keep_mask=True)
