"""A head in parts: layers of a share of the vocabulary each, one after the other, on whichever stages.

A part adds its logits to a running maximum and sum of exponentials of each token, which go on with the hidden states;
the last one knows the loss. On the way back each part adds its share to the gradient of the hidden states. So the loss
and all gradients are those of the head in one (softmax in passes: Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018). A vocabulary over all ranks of a pipeline balances them (Yeung et al., "Balancing
pipeline parallelism with vocabulary parallelism", 2024, where parts run at once and meet in all-reduces).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gapless.array_types import Ints
from gapless.errors import InputError
from gapless.profiles.pipelines.profile import PipelineProfile

__all__ = ["head_in_parts"]

_PASSED_BYTES = 12
"""Of a token, in single precision: the maximum, the sum of exponentials, and the logit of the label."""


def head_in_parts(profile: PipelineProfile, parts: int) -> PipelineProfile:
    """The profile with its last layer, the head, as so many layers that follow one another.

    Each has its share of the time, of weights, states and logits, and keeps the hidden states besides; what goes from
    part to part is as large as they are, with a few numbers for each token where `boundary_shape` says how many there
    are. The head's weights are its own then, not the embedding's. Raises `InputError` for a profile without a head.
    """
    if profile.is_uniform or profile.layer_count < 2:
        raise InputError(f"vocabulary_parts: needs a profile whose last layer is a head, got {profile.name!r}")
    hidden = int(profile.boundary_bytes[-2])
    passed = hidden + (_PASSED_BYTES * profile.boundary_shape[0] if profile.boundary_shape else 0)
    stash = int(profile.stash_bytes[-1])
    parameters = _shares(int(profile.parameter_bytes[-1]), parts)
    changes: dict[str, Any] = {
        name: np.append(column[:-1], np.full(parts, column[-1] / parts))
        for name in ("forward_s", "backward_s", "weight_s", "whole_backward_s")
        if (column := getattr(profile, name)) is not None
    }
    sizes = {
        "parameter_bytes": parameters,
        "state_bytes": parameters + _shares(int(profile.state_bytes[-1] - profile.parameter_bytes[-1]), parts),
        "stash_bytes": _kept(stash, hidden, parts),
        "boundary_bytes": np.array([passed] * (parts - 1) + [int(profile.boundary_bytes[-1])], dtype=np.int64),
    }
    if profile.weight_stash_bytes is not None:
        sizes["weight_stash_bytes"] = _kept(int(profile.weight_stash_bytes[-1]), hidden, parts)
    changes |= {name: np.concatenate([getattr(profile, name)[:-1], own]) for name, own in sizes.items()}
    names = (*profile.layer_names[:-1], *(f"{profile.layer_names[-1]}.{part}" for part in range(parts)))
    policies = (*profile.policies[:-1], *([()] * parts)) if profile.policies else ()
    return replace(profile, layer_names=names, policies=policies, embedding_bytes=0, **changes)


def _shares(size: int, parts: int) -> Ints:
    """Whole numbers that add up to the size."""
    return np.diff([size * part // parts for part in range(parts + 1)]).astype(np.int64)


def _kept(size: int, hidden: int, parts: int) -> Ints:
    """The hidden states in each part, and its share of all else."""
    own = min(size, hidden)
    return own + _shares(size - own, parts)
