"""`gapless profile cache`: what modes of a model's cache spoil, measured on a text. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cache.question import ProfileQuestion
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.methods.medians import guessed, proven
from gapless.options import Deadline, SolveOptions
from gapless.profiles.cache.layout import FORMATS, HEADS, PARTS, Layout
from gapless.profiles.cache.modes import LayerModes
from gapless.profiles.cache.profile import CacheProfile
from gapless.profiles.cache.profile_file import write_cache_profile
from gapless.profiles.heads.profile import HeadProfile, counts_to_measure, nearest
from gapless.report.text import table
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.heads.models import LanguageModel
    from gapless.torch.library import Tensor

__all__ = ["measured_cache", "profile_cache"]


def profile_cache(question: ProfileQuestion, session: Session) -> Answer:
    """Measure a model's modes on a text, and write the profile."""
    from gapless.torch.heads.models import load_language_model, sequences_of

    check_writable(question.output)
    model = load_language_model(question.model, session.options.seed, question.device, question.dtype)
    layout = Layout(model.layers[0].dimension, question.group, question.recent, question.sinks)
    tokens = model.tokens(question.calibration)
    sequences = sequences_of(tokens, question.sequence, question.sequences, f"calibration: {question.calibration}")
    windows = _windows(question, layout)
    profile = measured_cache(
        model, sequences, layout, windows, session.options, session.say, question.model, question.heads
    )
    if profile is None:
        return Answer({"output": None}, "stopped before all modes were measured: nothing is written", is_complete=False)
    write_cache_profile(question.output, profile)
    return Answer(_data(profile, question.output), _text(profile))


def _windows(question: ProfileQuestion, layout: Layout) -> tuple[int, ...]:
    """Those asked for, else a quarter and a half of a sequence where they hold the recent tokens."""
    if question.windows is None:
        return tuple(part for part in (question.sequence // 4, question.sequence // 2) if part >= layout.recent)
    short = [window for window in question.windows if window < layout.recent]
    if short:
        raise InputError(f"windows: must hold the {layout.recent} recent tokens, got {short[0]}")
    return tuple(sorted(set(question.windows)))


def measured_cache(
    model: LanguageModel, sequences: Tensor, layout: Layout, windows: Sequence[int], options: SolveOptions,
    say: Callable[[str], None] = lambda line: None, name: str = "", by: str = HEADS[0],
) -> CacheProfile | None:  # fmt: skip
    """The profile of a model's modes on sequences of shape (count, length); None where the time ends before it does.

    `by`: one of `HEADS`.
    """
    from gapless.torch.cache.measurement import FullModel, head_changes
    from gapless.torch.heads.measurement import measure_heads

    deadline, first = Deadline(options), model.layers[0]
    heads = measure_heads(model, sequences, "", say)
    counts = counts_to_measure(first.key_heads)
    rows = _representatives(heads, counts, deadline)
    say("keys and values, head by head ...")
    full = FullModel(model, sequences, layout)
    is_measured = by == "measured"
    shares = full.heads(lambda: deadline.over) if is_measured else head_changes(model, sequences, layout)
    formats = full.formats(say, lambda: deadline.over)
    say("windows, layer by layer ...")
    window = full.each([[replace(each, window=size) for size in windows] for each in full.full], lambda: deadline.over)
    say("shared keys, layer by layer ...")
    sharing = full.each(
        [[_sharing(modes, row, heads.group) for row in rows[layer]] for layer, modes in enumerate(full.full)],
        lambda: deadline.over,
    )
    if shares is None or formats is None or window is None or sharing is None:
        return None
    source = f"{name} on {len(sequences)} sequences of {sequences.shape[1]} tokens"
    return CacheProfile(
        heads.name, layout, heads.heads, heads.key_heads, heads.parameters, sequences.numel(), int(sequences.shape[1]),
        formats, shares, tuple(windows), window, tuple(counts), rows, sharing, source,
    )  # fmt: skip


def _sharing(full: LayerModes, row: NDArray[np.int64], group: int) -> LayerModes:
    return full.sharing(tuple(np.unique(row // group).tolist()), tuple(row.tolist()))


def _representatives(heads: HeadProfile, counts: Sequence[int], deadline: Deadline) -> NDArray[np.int64]:
    """The heads of each layer and count: the best by how much the output changes, a p-median."""
    rows = np.zeros((heads.layers, len(counts), heads.heads), dtype=np.int64)
    shape = heads.layers, heads.heads, heads.key_heads, heads.group
    for layer, cost in enumerate(heads.output.reshape(shape).min(axis=3)):
        kept = proven(cost, guessed(cost), deadline).kept
        for place, count in enumerate(counts):
            rows[layer, place] = nearest(heads.output[layer], kept[count - 1], heads.group)
    return rows


def _data(profile: CacheProfile, output: str) -> dict[str, object]:
    names = ("layers", "heads", "key_heads", "tokens", "sequence", "source", "windows", "counts")
    return {
        "profile": profile.name, **{name: getattr(profile, name) for name in names},
        **{name: getattr(profile, name).tolist() for name in ("formats", "window", "sharing")}, "output": output,
    }  # fmt: skip


def _text(profile: CacheProfile) -> str:
    """Divergences of layers, a line each."""
    titles = [f"{part} {name}" for part in PARTS for name in FORMATS[1:]]
    titles += [f"window {size}" for size in profile.windows] + [f"{count} keys" for count in profile.counts]
    lines = [["layer", *titles]]
    for layer in range(profile.layers):
        row = [profile.of(name, "divergence")[layer].reshape(-1).tolist() for name in ("formats", "window", "sharing")]
        lines.append([str(layer), *(f"{value:.2g}" for part in row for value in part)])
    said = "divergence from the full cache, nats a token, where one layer alone has the mode"
    return f"{table(lines)}\n{said}; {profile.source}"
