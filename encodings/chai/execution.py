"""Commands beside `solve`: a map run in a language model, and profiles measured on one. They need the extra `hf`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.head_map import map_of, nearest
from gapless.encodings.chai.medians import guessed, proven
from gapless.encodings.chai.problem import Problem
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.io.record import Record
from gapless.options import Deadline, SolveOptions
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.profiles.heads.profile import HeadProfile, Rises, counts_to_measure
from gapless.profiles.heads.profile_file import write_head_profile
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.torch.heads.generation import Comparison, Generated
    from gapless.torch.heads.models import LanguageModel

__all__ = ["execute", "profile_heads", "rises_of"]

_TOLERANCE = 1e-6
"""Of logits, or of the largest of them where that is above 1."""


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """Tokens, logits, cache, loss and speed beside those of the full model."""
    path = values["plan"]
    plan, report = plan_to_run(path, "chai")
    if not report.valid:
        return not_run(report)
    chosen = map_of(plan, path)
    from gapless.torch.heads.generation import compare
    from gapless.torch.heads.models import load_language_model, sequences_of

    model = load_language_model(values["model"], session.options.seed)
    _check_model(model, Record(dict(plan.problem), f"{path}: problem"), values["model"])
    tokens = model.tokens(values["text"])
    where = f"text: {values['text']}"
    sequences = sequences_of(tokens, values["sequence"], values["sequences"], where)
    prompt = sequences_of(tokens, values["prompt"], 1, where)[0]
    found = compare(model, chosen.kept, chosen.representative, prompt, values["new_tokens"], sequences, session.say)
    cached = len(prompt) + values["new_tokens"] - 1
    first = model.layers[0]
    head_bytes = cached * first.dimension * found.full.logits.element_size()
    everything = len(model.layers) * first.key_heads
    data = _data(found, (int(chosen.counts.sum()) + everything) * head_bytes, 2 * everything * head_bytes)
    data |= {"model": values["model"], "plan": path, "prompt": len(prompt), "new_tokens": values["new_tokens"],
             "loss_tokens": sequences.numel()}  # fmt: skip
    return Answer(data, _run_text(data), is_valid=data["valid"])


def _check_model(model: LanguageModel, asked: Record, name: str) -> None:
    first = model.layers[0]
    here = {"layers": len(model.layers), "heads": first.heads, "key_heads": first.key_heads}
    for title, count in here.items():
        if asked.integer(title, 1) != count:
            raise InputError(f"model: {name} has {count} {title}, the plan {asked.integer(title, 1)}; measure it again")


def _data(found: Comparison, planned_bytes: int, full_bytes: int) -> dict[str, Any]:
    is_equal = found.logit_difference <= _TOLERANCE * max(1.0, found.largest_logit)
    is_planned = found.shared.cache_bytes == planned_bytes and found.full.cache_bytes == full_bytes
    return {
        "valid": is_equal and is_planned,
        "logit_difference": found.logit_difference,
        "largest_logit": found.largest_logit,
        "planned_cache_bytes": planned_bytes,
        "cache_bytes": found.shared.cache_bytes,
        "full_cache_bytes": found.full.cache_bytes,
        "kv_saving": 1 - found.shared.cache_bytes / found.full.cache_bytes,
        "loss": found.losses[1],
        "full_loss": found.losses[0],
        "equal_tokens": int((found.shared.tokens == found.full.tokens).sum()),
        "token_s": _median(found.shared),
        "full_token_s": _median(found.full),
    }


def _median(found: Generated) -> float:
    return statistics.median(found.token_s)


def _run_text(data: Mapping[str, Any]) -> str:
    rows = [["", "cache", "loss", "tokens/s"]]
    for name, start in (("full", "full_"), ("plan", "")):
        rows.append([name, format_bytes(data[f"{start}cache_bytes"]), f"{data[f'{start}loss']:.4f}",
                     f"{1 / data[f'{start}token_s']:.1f}"])  # fmt: skip
    is_planned = data["cache_bytes"] == data["planned_cache_bytes"]
    planned = "as planned" if is_planned else f"planned were {format_bytes(data['planned_cache_bytes'])}"
    return "\n".join([
        table(rows),
        f"cache after {data['prompt']} + {data['new_tokens'] - 1} tokens: {data['kv_saving']:.1%} saved, {planned}",
        f"logits differ by {data['logit_difference']:.2g} from those of the model with copied rows of queries and keys",
        f"{data['equal_tokens']} of {data['new_tokens']} tokens are the full model's",
    ])  # fmt: skip


def profile_heads(values: Mapping[str, Any], session: Session) -> Answer:
    """Measure a model's heads on a text, and write the profile."""
    from gapless.torch.heads.measurement import measure_heads
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
    return Answer(data, _profile_text(data), () if is_complete else (f"stopped: {said}",), is_complete=is_complete)


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


def _profile_text(data: Mapping[str, Any]) -> str:
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


def rises_of(
    model: LanguageModel, profile: HeadProfile, sequences: Any, options: SolveOptions,
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
