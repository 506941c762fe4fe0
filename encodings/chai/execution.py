"""A head map run in a language model, with a cache that holds the kept keys alone: `gapless run`. Needs `hf`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.encodings.chai.view import map_of
from gapless.errors import InputError
from gapless.io.record import Record
from gapless.plans_to_run import not_run, plan_to_run
from gapless.system import Answer, Session
from gapless.text import table
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.torch.heads.generating import Comparison, Generated
    from gapless.torch.heads.models import LanguageModel

__all__ = ["execute"]

_TOLERANCE = 1e-6
"""Of logits, or of the largest of them where that is above 1."""


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """Tokens, logits, cache, loss and speed beside those of the full model."""
    path = values["plan"]
    plan, report = plan_to_run(path, "chai")
    if not report.valid:
        return not_run(report)
    chosen = map_of(plan, f"{path}: details")
    from gapless.torch.heads.generating import compare
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
    return Answer(data, _text(data), is_valid=data["valid"])


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


def _text(data: Mapping[str, Any]) -> str:
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
