"""Head profiles measured on a language model and a text: `gapless profile heads`. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gapless.io.atomic import check_writable
from gapless.profiles.heads.profile import HeadProfile
from gapless.profiles.heads.profile_file import write_head_profile
from gapless.system import Answer, Session
from gapless.text import table

__all__ = ["profile_heads"]


def profile_heads(values: Mapping[str, Any], session: Session) -> Answer:
    """Measure a model's heads on a text, and write the profile."""
    from gapless.torch.heads.measuring import measure_heads
    from gapless.torch.heads.models import load_language_model, sequences_of

    check_writable(values["output"])
    model = load_language_model(values["model"], session.options.seed)
    tokens = model.tokens(values["calibration"])
    sequences = sequences_of(tokens, values["sequence"], values["sequences"], f"calibration: {values['calibration']}")
    source = f"{values['model']} on {len(sequences)} sequences of {values['sequence']} tokens"
    profile = measure_heads(model, sequences, source, session.say)
    write_head_profile(values["output"], profile)
    data = {
        "profile": profile.name,
        "source": source,
        "layers": _rows(profile),
        "heads": profile.heads,
        "key_heads": profile.key_heads,
        "dimension": profile.dimension,
        "parameters": profile.parameters,
        "tokens": profile.tokens,
        "output": values["output"],
    }
    return Answer(data, _text(data))


def _rows(profile: HeadProfile) -> list[dict[str, float]]:
    """By layer: means of the distances over pairs, and of each head from the nearest other one."""
    apart = ~np.eye(profile.heads, dtype=np.bool_)
    rows = []
    for layer in range(profile.layers):
        row = {}
        for name in ("scores", "output"):
            found = profile.distance(name)[layer]
            row[f"{name}_mean"] = float(found[apart].mean()) if profile.heads > 1 else 0.0
            row[f"{name}_nearest"] = (
                float(np.where(apart, found, np.inf).min(axis=1).mean()) if profile.heads > 1 else 0.0
            )
        rows.append(row)
    return rows


def _text(data: Mapping[str, Any]) -> str:
    titles = ("scores_mean", "scores_nearest", "output_mean", "output_nearest")
    lines = [["layer", *(title.replace("_", " ") for title in titles)]]
    for layer, row in enumerate(data["layers"]):
        lines.append([str(layer), *(f"{row[title]:.4g}" for title in titles)])
    heads = f"{data['heads']} heads, {data['key_heads']} with keys, of {data['dimension']}"
    return f"{table(lines)}\n{heads}; squared distances a token; {data['source']}"
