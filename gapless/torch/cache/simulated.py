"""Attention over whole sequences as if each token had met a plan's cache. Needs the extra `hf`.

A query sees the keys and values that the cache would have had at its token: those in groups that were full by then
rounded, dropped ones not at all. So a pass over a sequence gives what decoding it token by token with the cache would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from gapless.profiles.cache.layout import FULL, Layout
from gapless.profiles.cache.modes import SHARED, LayerModes
from gapless.torch.cache.rounding import rounded
from gapless.torch.heads.attention import attending, repeated
from gapless.torch.heads.models import LanguageModel
from gapless.torch.library import Tensor, torch

__all__ = ["attend_as", "first_tokens", "simulating", "unpadded", "visible"]


@contextmanager
def simulating(found: LanguageModel, layers: Sequence[LayerModes], layout: Layout) -> Iterator[None]:
    """Within the block a model attends as with the plan's cache, in calls without a cache."""
    with attending(found, [partial(attend_as, modes, layout) for modes in layers]):
        yield


def attend_as(
    modes: LayerModes, layout: Layout, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, None]:
    """Outputs of a layer's queries, all tokens' of sequences from their first on: (batch, tokens, heads, dimension)."""
    tokens, times = query.shape[2], query.shape[1] // key.shape[1]
    first = first_tokens(mask, len(query), tokens, query.device)
    key, value = unpadded(key, first), unpadded(value, first)
    rows = torch.tensor(modes.representatives, device=query.device)
    place = torch.arange(tokens, device=query.device)
    is_rounded = (
        place[None] < torch.tensor([layout.quantised(n + 1) for n in range(tokens)], device=place.device)[:, None]
    )
    query = query[:, rows]
    scores = torch.matmul(query, repeated(key, times)[:, rows].transpose(2, 3))
    in_cache = _in_formats(key, "keys", modes.keys, layout)
    if in_cache is not None:
        scores = torch.where(
            is_rounded, torch.matmul(query, repeated(in_cache, times)[:, rows].transpose(2, 3)), scores
        )
    scores = scores * scaling
    if mask is not None:
        scores = scores + mask
    if modes.window:
        seen = visible(modes.window, layout, tokens, first)
        scores = scores.masked_fill(~seen[:, None], torch.finfo(scores.dtype).min)
    precision = torch.promote_types(query.dtype, torch.float32)
    attention = torch.softmax(scores, dim=-1, dtype=precision).to(query.dtype)
    in_cache = _in_formats(value, "values", modes.values, layout)
    if in_cache is None:
        return torch.matmul(attention, repeated(value, times)).transpose(1, 2).contiguous(), None
    old = torch.matmul(attention * is_rounded, repeated(in_cache, times))
    new = torch.matmul(attention * ~is_rounded, repeated(value, times))
    return (old + new).transpose(1, 2).contiguous(), None


def _in_formats(states: Tensor, part: str, names: Sequence[str], layout: Layout) -> Tensor | None:
    """Keys or values as the cache has them in the end, but for tokens in full; None where all heads are in full."""
    whole = states.shape[2] // layout.group * layout.group
    made = None
    for name in sorted(set(names) - {FULL, SHARED}):
        made = states.clone() if made is None else made
        heads = [head for head, other in enumerate(names) if other == name]
        made[:, heads, :whole] = rounded(states[:, heads, :whole], part, name, layout)
    return made


def first_tokens(mask: Tensor | None, batch: int, tokens: int, device: object) -> Tensor:
    """Where each sequence begins after its padding, int64, (batch,): the first column that its last query sees."""
    if mask is None:
        return torch.zeros(batch, dtype=torch.int64, device=device)
    return (mask[:, 0, -1, :tokens] == 0).to(torch.int64).argmax(dim=1).expand(batch)


def unpadded(states: Tensor, first: Tensor) -> Tensor:
    """Keys or values with each sequence's first token in the place of its padding, which has no meaning, and would
    widen the scale of its group.
    """
    if not bool(first.any()):
        return states
    place = torch.arange(states.shape[2], device=first.device)
    return states.gather(2, place.maximum(first[:, None])[:, None, :, None].expand_as(states))


def visible(window: int, layout: Layout, tokens: int, first: Tensor) -> Tensor:
    """Whether a token's query sees a place, but for what comes later: (batch, queries, places)."""
    place = torch.arange(tokens, device=first.device)
    starts = torch.tensor([layout.start(n + 1, window) for n in range(tokens)], device=first.device)
    is_sink = (place >= first[:, None]) & (place < first[:, None] + layout.sinks)
    return (place[None, None] >= starts[None, :, None]) | is_sink[:, None]
