"""Head profiles measured on a language model and a text: `gapless profile heads`. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gapless.encodings.chai.rising import rises_of
from gapless.io.atomic import check_writable
from gapless.profiles.heads.profile import HeadProfile
from gapless.profiles.heads.profile_file import write_head_profile
from gapless.profiles.heads.rises import Rises, counts_to_measure
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
    rises, full_loss = None, None
    asked_sequences = sequences[: values["loss_sequences"]]
    if len(asked_sequences):
        full_loss, rises = rises_of(model, profile, asked_sequences, session.options, session.say)
        used = f"; rises of the loss on {len(asked_sequences)} of them"
        profile = replace(profile, rises=rises, source=source + (used if rises is not None else ""))
    write_head_profile(values["output"], profile)
    data = {
        "profile": profile.name,
        "source": profile.source,
        "layers": _rows(profile),
        "heads": profile.heads,
        "key_heads": profile.key_heads,
        "dimension": profile.dimension,
        "parameters": profile.parameters,
        "tokens": profile.tokens,
        "full_loss": full_loss,
        "rises": None if rises is None else [_known(row) for row in rises.loss.tolist()],
        "output": values["output"],
    }
    missing = 0 if rises is None else _missing(rises)
    is_complete = not len(asked_sequences) or (rises is not None and not missing)
    said = "no rise of the loss is in the profile" if rises is None else f"{missing} rises of the loss are interpolated"
    return Answer(data, _text(data), () if is_complete else (f"stopped: {said}",), is_complete=is_complete)


def _missing(rises: Rises) -> int:
    """How many rises that should be measured aren't."""
    counts = counts_to_measure(rises.loss.shape[1])
    return int((~rises.is_measured[:, np.array(counts, dtype=int) - 1]).sum())


def _known(row: list[float]) -> list[float | None]:
    return [None if np.isnan(value) else value for value in row]


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
    rises = _rises_text(data["rises"], data["full_loss"])
    heads = f"{data['heads']} heads, {data['key_heads']} with keys, of {data['dimension']}"
    return f"{table(lines)}\n{rises}{heads}; squared distances a token; {data['source']}"


def _rises_text(rises: list[list[float | None]] | None, full_loss: float) -> str:
    """A table of what is measured, or nothing."""
    if rises is None:
        return ""
    measured = [place for place in range(len(rises[0]) - 1) if any(row[place] is not None for row in rises)]
    lines = [["layer", *(f"{place + 1} kept" for place in measured)]]
    for layer, row in enumerate(rises):
        lines.append([str(layer), *("-" if row[place] is None else f"{row[place]:.4f}" for place in measured)])
    return f"\nrise of the loss, {full_loss:.4f} with all heads, where one layer alone keeps so many:\n{table(lines)}\n"
