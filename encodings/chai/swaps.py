"""Swaps that are measured on the true loss of a model: `--swaps`. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gapless.encodings.chai.head_map import HeadMap, Ints, nearest
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.problem import Problem
from gapless.errors import InputError
from gapless.options import Deadline

__all__ = ["with_swaps"]


def with_swaps(
    asked: Problem, chosen: HeadMap, parameters: Parameters, seed: int, deadline: Deadline
) -> tuple[HeadMap, dict[str, Any]]:
    """The map after swaps, and an account of them. Raises `InputError` for a model that isn't the profile's."""
    from gapless.torch.heads.models import load_language_model, sequences_of
    from gapless.torch.heads.swapping import swapped

    profile = asked.profile
    model = load_language_model(asked.model, seed)
    here = len(model.layers), model.layers[0].heads, model.layers[0].key_heads
    there = profile.layers, profile.heads, profile.key_heads
    if here != there:
        raise InputError(f"model: must have the profile's {there} layers, heads and key heads, got {here}")
    tokens = model.tokens(asked.calibration)
    sequences = sequences_of(tokens, parameters.swap_sequence, parameters.swap_sequences, "calibration")
    distance = profile.distance(asked.distance)

    def row_of(layer: int, kept: Sequence[int]) -> tuple[Ints, float]:
        row = nearest(distance[layer], kept, profile.group)
        return row, float(distance[layer, range(profile.heads), row].sum())

    found = swapped(model, chosen.kept, profile.key_heads, row_of, sequences, asked.swaps, lambda: deadline.over)
    account = {
        "tried": found.tried,
        "made": found.made,
        "loss_before": found.loss_before,
        "loss_after": found.loss_after,
        "error_before": chosen.error(distance),
    }
    return (chosen if not found.made else HeadMap.of(found.kept, profile, asked.distance)), account
