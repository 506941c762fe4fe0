"""`gapless profile heads`: a model's heads measured on a text. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.commands.pictures import cluster_errors, draw_profile
from gapless.encodings.chai.problem import Problem
from gapless.encodings.chai.question import ProfileQuestion
from gapless.io.atomic import check_writable
from gapless.methods.medians import guessed, proven
from gapless.options import Deadline, SolveOptions
from gapless.plot.style import check_plot, save
from gapless.profiles.heads.profile import HeadProfile, Rises, counts_to_measure, nearest
from gapless.profiles.heads.profile_file import write_head_profile
from gapless.report.text import table
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.heads.models import LanguageModel
    from gapless.torch.library import Tensor

__all__ = ["profile_heads", "rises_of"]


def profile_heads(question: ProfileQuestion, session: Session) -> Answer:
    """Measure a model's heads on a text, and write the profile."""
    from gapless.torch.heads.measurement import measure_heads
    from gapless.torch.heads.models import load_language_model, sequences_of

    check_writable(question.output)
    if question.plot is not None:
        check_plot(question.plot)
    model = load_language_model(question.model, session.options.seed, question.device, question.dtype)
    tokens = model.tokens(question.calibration)
    sequences = sequences_of(tokens, question.sequence, question.sequences, f"calibration: {question.calibration}")
    source = f"{question.model} on {len(sequences)} sequences of {question.sequence} tokens"
    profile = measure_heads(model, sequences, source, session.say)
    rises, full_loss = None, None
    asked_sequences = sequences[: question.loss_sequences]
    if len(asked_sequences):
        full_loss, rises = rises_of(model, profile, asked_sequences, session.options, session.say)
        used = f"; rises of the loss on {len(asked_sequences)} of them"
        profile = replace(profile, rises=rises, source=source + (used if rises is not None else ""))
    write_head_profile(question.output, profile)
    correlation = profile.correlation((question.sequence + 1) / 2)
    assert correlation is not None, "it was measured"
    data = {
        "profile": profile.name,
        "source": profile.source,
        "layers": _rows(profile),
        **{name: getattr(profile, name) for name in ("heads", "key_heads", "dimension", "parameters", "tokens")},
        "full_loss": full_loss,
        "rises": None if rises is None else [_known(row) for row in rises.loss.tolist()],
        "correlations": correlation.tolist(),
        "cluster_errors": cluster_errors(profile).tolist(),
        "output": question.output,
    }
    if question.plot is not None:
        save(draw_profile(data), question.plot)
    missing = 0 if rises is None else _missing(rises)
    is_complete = not len(asked_sequences) or (rises is not None and not missing)
    said = "no rise of the loss is in the profile" if rises is None else f"{missing} rises of the loss are interpolated"
    notes = () if is_complete else (f"stopped: {said}",)
    return Answer(data, _profile_text(profile, full_loss), notes, is_complete=is_complete)


def _missing(rises: Rises) -> int:
    """How many rises that should be measured aren't."""
    counts = counts_to_measure(rises.loss.shape[1])
    return int((~rises.is_measured[:, np.array(counts, dtype=int) - 1]).sum())


def _known(row: list[float]) -> list[float | None]:
    return [None if np.isnan(value) else value for value in row]


_DISTANCES = ("scores", "output")


def _rows(profile: HeadProfile) -> list[dict[str, float]]:
    """By layer: means of the distances over pairs, and of each head from the nearest other one."""
    if profile.heads == 1:
        return [{f"{name}_{kind}": 0.0 for name in _DISTANCES for kind in ("mean", "nearest")}] * profile.layers
    apart, rows = ~np.eye(profile.heads, dtype=np.bool_), []
    for layer in range(profile.layers):
        row = {}
        for name in _DISTANCES:
            found = profile.distance(name)[layer]
            row[f"{name}_mean"] = float(found[apart].mean())
            row[f"{name}_nearest"] = float(np.where(apart, found, np.inf).min(axis=1).mean())
        rows.append(row)
    return rows


def _profile_text(profile: HeadProfile, full_loss: float | None) -> str:
    rows = _rows(profile)
    lines = [["layer", *(title.replace("_", " ") for title in rows[0])]]
    lines += [[str(layer), *(f"{value:.4g}" for value in row.values())] for layer, row in enumerate(rows)]
    rises = "" if profile.rises is None or full_loss is None else _rises_text(profile.rises, full_loss)
    heads = f"{profile.heads} heads, {profile.key_heads} with keys, of {profile.dimension}"
    return f"{table(lines)}\n{rises}{heads}; squared distances a token; {profile.source}"


def _rises_text(rises: Rises, full_loss: float) -> str:
    """A table of what is measured."""
    measured = np.flatnonzero(rises.is_measured[:, :-1].any(axis=0)).tolist()
    lines = [["layer", *(f"{place + 1} kept" for place in measured)]]
    for layer, row in enumerate(map(_known, rises.loss.tolist())):
        lines.append([str(layer), *("-" if row[place] is None else f"{row[place]:.4f}" for place in measured)])
    return f"\nrise of the loss, {full_loss:.4f} with all heads, where one layer alone keeps so many:\n{table(lines)}\n"


def rises_of(
    model: LanguageModel, profile: HeadProfile, sequences: Tensor, options: SolveOptions,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[float, Rises | None]:  # fmt: skip
    """The mean loss with all heads, and its rises on sequences of shape (count, length).

    None for the rises where it is over before one head in each layer is measured.
    """
    from gapless.torch.heads.measurement import measured_rises

    deadline = Deadline(options)
    say("the best heads of each layer for every count ...")
    kept = _best_heads(profile, deadline)

    def map_of(layer: int, count: int) -> tuple[list[int], NDArray[np.int64]]:
        heads = np.flatnonzero(kept[layer, count - 1]).tolist()
        return heads, nearest(profile.output[layer], heads, profile.group)

    counts = counts_to_measure(profile.key_heads)
    loss, rise = measured_rises(model, map_of, counts, sequences, lambda: deadline.over, say)
    return loss, None if np.isnan(rise[:, 0]).any() else Rises(rise, kept)


def _best_heads(profile: HeadProfile, deadline: Deadline) -> NDArray[np.bool_]:
    """As `Rises.kept`: of each layer and count, those of the exact p-median on the output distance."""
    kept = np.zeros((profile.layers, profile.key_heads, profile.key_heads), dtype=np.bool_)
    for layer, cost in enumerate(Problem(profile, 0.0, "output").cost):
        for place, heads in enumerate(proven(cost, guessed(cost), deadline).kept):
            # Fewer than asked for are as good where heads are alike: others fill up.
            more = [head for head in range(profile.key_heads) if head not in heads]
            kept[layer, place, [*heads, *more][: place + 1]] = True
    return kept
