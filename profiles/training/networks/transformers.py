"""Transformers: BERT (base and large) and GPT-2 (small).

Operators that a framework runs as views (splitting heads, transposing) make no nodes; scaling and masking of attention
scores belong to the softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gapless.errors import InputError
from gapless.profiles.training import layers
from gapless.profiles.training.builder import NetworkBuilder, Value

__all__ = ["Size", "bert_base", "bert_large", "gpt2_block", "gpt2_small"]

_HEAD_FEATURES = 64
_TOKEN_BYTES = 8


@dataclass(frozen=True)
class Size:
    """The layers of a transformer, and the features of a token in it."""

    layers: int
    features: int


_BASE, _LARGE = Size(12, 768), Size(24, 1024)

_BERT_VOCABULARY, _BERT_POSITIONS, _BERT_SEGMENTS = 30522, 512, 2
_GPT2_VOCABULARY, _GPT2_POSITIONS = 50257, 1024


def bert_base(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """BERT with its pooler, as it is fine-tuned for a task on whole sequences; normalisation behind each sum."""
    return _bert(net, size, _BASE)


def bert_large(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """The same, of 24 layers of 1,024 features."""
    return _bert(net, size, _LARGE)


def _bert(net: NetworkBuilder, size: tuple[int, ...], of: Size) -> list[Value]:
    tokens, segments = (_token_input(net, size, _BERT_POSITIONS) for _ in range(2))
    x = layers.add(
        net,
        _table(net, "embeddings.word_embeddings", tokens, _BERT_VOCABULARY, of.features),
        _table(net, "embeddings.position_embeddings", tokens, _BERT_POSITIONS, of.features),
        _table(net, "embeddings.token_type_embeddings", segments, _BERT_SEGMENTS, of.features),
    )
    x = net.named("embeddings.LayerNorm", layers.layer_norm(net, x))
    x = layers.dropout(net, x, keep_mask=True)
    for number in range(of.layers):
        name = f"encoder.layer.{number}"
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        mixed = _attention(net, x, parts, f"{name}.attention.output.dense")
        x = net.named(f"{name}.attention.output.LayerNorm", layers.layer_norm(net, layers.add(net, mixed, x)))
        out = _feed_forward(net, x, f"{name}.intermediate.dense", f"{name}.output.dense")
        x = net.named(f"{name}.output.LayerNorm", layers.layer_norm(net, layers.add(net, out, x)))
    first = layers.first_position(net, x)
    return [layers.tanh(net, net.named("pooler.dense", layers.linear(net, first, of.features)))]


def gpt2_small(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """GPT-2 with its language model head, tied to the table of tokens; normalisation before each block."""
    tokens = _token_input(net, size, _GPT2_POSITIONS)
    x = layers.add(
        net,
        _table(net, "wte", tokens, _GPT2_VOCABULARY, _BASE.features, tied=True),
        _table(net, "wpe", tokens, _GPT2_POSITIONS, _BASE.features),
    )
    x = layers.dropout(net, x, keep_mask=True)
    for number in range(_BASE.layers):
        x = gpt2_block(net, x, f"h.{number}")
    x = net.named("ln_f", layers.layer_norm(net, x))
    return [net.named("wte", layers.linear(net, x, _GPT2_VOCABULARY, bias=False, tied=True))]


def gpt2_block(net: NetworkBuilder, x: Value, name: str) -> Value:
    """One of GPT-2's layers, `name` before the names of its parameters."""
    normed = net.named(f"{name}.ln_1", layers.layer_norm(net, x))
    # The framework holds query, key and value in one tensor.
    x = layers.add(net, x, _attention(net, normed, [f"{name}.attn.c_attn"] * 3, f"{name}.attn.c_proj"))
    normed = net.named(f"{name}.ln_2", layers.layer_norm(net, x))
    return layers.add(net, x, _feed_forward(net, normed, f"{name}.mlp.c_fc", f"{name}.mlp.c_proj"))


def _token_input(net: NetworkBuilder, size: tuple[int, ...], limit: int) -> Value:
    if size[0] > limit:
        raise InputError(f"network {net.name!r}: input_size must be at most {limit} tokens, got {size[0]}")
    return net.input(*size, element_bytes=_TOKEN_BYTES)


def _table(net: NetworkBuilder, name: str, x: Value, rows: int, features: int, tied: bool = False) -> Value:
    return net.named(name, layers.embedding(net, x, rows, features, tied=tied))


def _attention(net: NetworkBuilder, x: Value, parts: Sequence[str], output: str) -> Value:
    """`parts`, `output`: names of the layers that make query, key and value, and of the one behind."""
    batch, tokens, features = x.shape
    split = (batch, features // _HEAD_FEATURES, tokens, _HEAD_FEATURES)
    query, key, value = (net.named(name, layers.linear(net, x, features)).viewed(*split) for name in parts)
    weights = layers.softmax(net, layers.matmul(net, query, key, transposed=True))
    mixed = layers.matmul(net, layers.dropout(net, weights, keep_mask=True), value)
    out = net.named(output, layers.linear(net, mixed.viewed(batch, tokens, features), features))
    return layers.dropout(net, out, keep_mask=True)


def _feed_forward(net: NetworkBuilder, x: Value, widening: str, narrowing: str) -> Value:
    """`widening`, `narrowing`: names of the two layers."""
    out = layers.gelu(net, net.named(widening, layers.linear(net, x, 4 * x.shape[-1])))
    return layers.dropout(net, net.named(narrowing, layers.linear(net, out, x.shape[-1])), keep_mask=True)
