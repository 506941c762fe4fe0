"""Times to the first and to the next token: the full model, a map for all requests, heads clustered by request.

Needs the extra `hf`. The full model attends as transformers does by default, with a kernel that keeps no scores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from gapless.torch.devices import device_of
from gapless.torch.heads.attention import AttentionFunction, attending
from gapless.torch.heads.models import Cache, DynamicLayer, LanguageModel, cached_logits, check_length
from gapless.torch.heads.requests import Choose, watching
from gapless.torch.heads.sharing import Chosen, Membership, cache_bytes, kept_cache, sharing_functions
from gapless.torch.library import Tensor, torch

__all__ = ["Latency", "latencies"]


@dataclass(frozen=True)
class _Span:
    """Seconds of the clock, and of the processor, all threads."""

    wall_s: float
    cpu_s: float


@dataclass
class Latency:
    """Of all rounds: to the first token, clustering included; to each token after that; and of the clustering alone.

    `cache_bytes`: with all tokens but the last.
    """

    first: list[_Span] = field(default_factory=list)
    following: list[_Span] = field(default_factory=list)
    clustering: list[_Span] = field(default_factory=list)
    cache_bytes: int = 0

    @property
    def data(self) -> dict[str, float | None]:
        """Medians, and of the first token also the spread: the longest less the shortest, of the median."""
        return {
            **_medians("first_token", self.first),
            **_medians("next_token", self.following),
            **_medians("clustering", self.clustering),
            "first_token_spread": (max(walls := [each.wall_s for each in self.first]) - min(walls))
            / statistics.median(walls),
            "cache_bytes": self.cache_bytes,
        }


def _medians(name: str, spans: Sequence[_Span]) -> dict[str, float | None]:
    kinds = {f"{name}_s": [each.wall_s for each in spans], f"{name}_cpu_s": [each.cpu_s for each in spans]}
    return {kind: statistics.median(found) if found else None for kind, found in kinds.items()}


def latencies(
    found: LanguageModel, prompts: Tensor, chosen: Chosen, choose: Choose, first: int, new_tokens: int, rounds: int
) -> dict[str, Latency]:
    """By `full`, `static` and `request`, served in turns, so many rounds after one that doesn't count.

    `prompts`: (requests, tokens). `chosen`: the map for all; `choose`: that of a request, after its first tokens.
    Raises `InputError` where the context gets too long.
    """
    check_length(found, prompts.shape[1], new_tokens)
    makers: Mapping[str, Callable[[Latency], None]] = {
        "full": partial(_full, found, prompts, new_tokens),
        "static": partial(_static, found, prompts, new_tokens, chosen),
        "request": partial(_request, found, prompts, new_tokens, choose, first),
    }
    made = {name: Latency() for name in makers}
    with torch.no_grad():
        for number in range(rounds + 1):
            for name, serve in makers.items():
                serve(made[name] if number else Latency())
    return made


def _now(found: LanguageModel) -> _Span:
    device_of(found.device).synchronize()
    return _Span(time.perf_counter(), time.process_time())


@contextmanager
def _timed(found: LanguageModel, spans: list[_Span]) -> Iterator[None]:
    begin = _now(found)
    yield
    end = _now(found)
    spans.append(_Span(end.wall_s - begin.wall_s, end.cpu_s - begin.cpu_s))


def _full(found: LanguageModel, prompts: Tensor, new_tokens: int, latency: Latency) -> None:
    cache = Cache(layers=[DynamicLayer() for _ in found.layers])
    found.model.set_attn_implementation("sdpa")
    try:
        with _timed(found, latency.first):
            tokens = _following(found, cache, prompts)
        _go_on(found, cache, tokens, new_tokens, latency)
    finally:
        found.model.set_attn_implementation("eager")


def _static(found: LanguageModel, prompts: Tensor, new_tokens: int, chosen: Chosen, latency: Latency) -> None:
    cache, functions = kept_cache(chosen[0]), sharing_functions(found, Membership.of([chosen], found.device))
    with attending(found, functions):
        with _timed(found, latency.first):
            tokens = _following(found, cache, prompts)
        _go_on(found, cache, tokens, new_tokens, latency)


def _request(
    found: LanguageModel, prompts: Tensor, new_tokens: int, choose: Choose, first: int, latency: Latency
) -> None:
    cache, functions = kept_cache([None] * len(found.layers)), list[AttentionFunction]()
    with _timed(found, latency.first):
        begin, sums = watching(found, len(prompts))
        with attending(found, begin):
            _following(found, cache, prompts[:, :first])
        with _timed(found, latency.clustering):
            membership = Membership.of([choose(each) for each in sums.cpu().numpy()], found.device)
            for layer, kept in zip(cache.layers, membership.kept, strict=True):
                layer.shrink(kept)
            functions += sharing_functions(found, membership)
        with attending(found, functions):
            tokens = _following(found, cache, prompts[:, first:])
    with attending(found, functions):
        _go_on(found, cache, tokens, new_tokens, latency)


def _following(found: LanguageModel, cache: Cache, tokens: Tensor) -> Tensor:
    """The most likely tokens after these, (requests, 1)."""
    return cached_logits(found.model, tokens, cache, logits_to_keep=1)[:, -1:].argmax(dim=-1)


def _go_on(found: LanguageModel, cache: Cache, tokens: Tensor, new_tokens: int, latency: Latency) -> None:
    for _ in range(new_tokens - 1):
        with _timed(found, latency.following):
            tokens = _following(found, cache, tokens)
    latency.cache_bytes = cache_bytes(cache)
