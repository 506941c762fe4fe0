"""Generation with the full cache and with a plan's, prompts of unequal lengths at once. Needs the extra `hf`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gapless.profiles.cache.layout import Layout
from gapless.profiles.cache.modes import LayerModes
from gapless.torch.cache.planned import planned_cache
from gapless.torch.cache.simulated import simulating
from gapless.torch.heads.generation import Generated
from gapless.torch.heads.models import Cache, LanguageModel, cached_logits, check_length
from gapless.torch.heads.sharing import cache_bytes, kept_cache
from gapless.torch.library import Tensor, torch

__all__ = ["Comparison", "compare", "padded"]


@dataclass(frozen=True)
class Comparison:
    """A model with the full cache and with a plan's; `logit_difference`: the largest between the plan's logits and
    those of one pass over all its tokens as the simulation has it; `largest_logit`: in size.
    """

    full: Generated
    plan: Generated
    logit_difference: float
    largest_logit: float


def padded(sequences: Tensor) -> tuple[Tensor, Tensor]:
    """Prompts of which all but the first have one token less, with padding before it; and which tokens are theirs."""
    tokens, mask = sequences.clone(), torch.ones_like(sequences)
    tokens[1:, 0], mask[1:, 0] = 0, 0
    return tokens, mask


def compare(
    found: LanguageModel, modes: Sequence[LayerModes], layout: Layout, prompts: Tensor, count: int,
    report: Callable[[str], None] = lambda line: None,
) -> Comparison:  # fmt: skip
    """Generate so many tokens after prompts, (batch, tokens). Raises `InputError` where the context gets too long."""
    check_length(found, prompts.shape[1], count)
    tokens, mask = padded(prompts)
    report("generating with the full cache ...")
    full_cache = kept_cache([None] * len(found.layers))
    full = _generated(found, full_cache, tokens, mask, count, lambda: cache_bytes(full_cache))
    report("generating with the plan's cache ...")
    with planned_cache(found, modes, layout) as cache:
        plan = _generated(found, cache, tokens, mask, count, lambda: cache.size_bytes)
    report("the same tokens in one pass ...")
    everything = torch.cat([tokens, plan.tokens[:, :-1]], dim=1)
    shown = torch.cat([mask, torch.ones_like(plan.tokens[:, :-1])], dim=1)
    with torch.no_grad(), simulating(found, modes, layout):
        whole = found.model(everything, use_cache=False, attention_mask=shown, position_ids=_places(shown)).logits
    apart = (whole[:, -count:].float() - plan.logits.float()).abs().max()
    return Comparison(full, plan, float(apart), float(whole.abs().max()))


def _places(mask: Tensor) -> Tensor:
    """Of tokens in their sequences."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def _generated(
    found: LanguageModel, cache: Cache, tokens: Tensor, mask: Tensor, count: int, size: Callable[[], int]
) -> Generated:
    logits, chosen, times = [], [], []
    places = _places(mask)
    with torch.no_grad():
        for _ in range(count):
            begin_s = time.perf_counter()
            last = cached_logits(found.model, tokens, cache, attention_mask=mask, position_ids=places)[:, -1]
            following = last.argmax(dim=1)
            times.append(time.perf_counter() - begin_s)
            logits.append(last)
            chosen.append(following)
            tokens, places = following[:, None], places[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(tokens)], dim=1)
    return Generated(torch.stack(chosen, dim=1), torch.stack(logits, dim=1), size(), tuple(times[1:]))
