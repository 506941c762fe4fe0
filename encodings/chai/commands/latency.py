"""`gapless run chai-latency`: times to the first and to the next token by length, batch and precision. Needs `hf`."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.clusters import clustered_map
from gapless.encodings.chai.commands.opening import Opened, opened
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.queries import using
from gapless.encodings.chai.question import LatencyQuestion
from gapless.errors import InputError
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.torch.heads.sharing import Chosen

__all__ = ["execute_latency"]

_KINDS = ("first_token", "next_token")


def execute_latency(question: LatencyQuestion, session: Session) -> Answer:
    """Medians in turns of the full model, the plan's map, and heads clustered by request."""
    if min(question.lengths) <= question.first_tokens:
        rule = f"must be more than the {question.first_tokens} first tokens"
        raise InputError(f"lengths: {rule}, got {min(question.lengths)}")
    rows: list[dict[str, object]] = []
    for dtype in question.dtypes:
        answer = opened(question, session, dtype, partial(_timed, question, dtype, session, rows))
        if not answer.is_valid:
            return answer
    asked = {name: getattr(question, name) for name in ("model", "device", "plan", "first_tokens", "new_tokens")}
    return Answer({"rows": rows, "repeats": question.repeats, **asked}, _text(rows, question))


def _timed(
    question: LatencyQuestion, dtype: str, session: Session, rows: list[dict[str, object]], found: Opened
) -> Answer:
    """Add the rows of a precision."""
    from gapless.torch.heads.latency import latencies
    from gapless.torch.library import torch

    model, counts = found.model, found.chosen.counts.tolist()

    def choose(distance: NDArray[np.float64]) -> Chosen:
        key_heads = model.layers[0].key_heads
        made = clustered_map(distance, counts, key_heads, Parameters().k_means_rounds)
        made = using(made, distance, key_heads, found.used)
        return made.kept, made.representative

    chosen = found.chosen.kept, found.chosen.representative
    for batch, length in product(question.batches, question.lengths):
        session.say(f"{dtype}, {batch} x {length} tokens ...")
        draw = torch.Generator().manual_seed(session.options.seed)
        prompts = torch.randint(model.model.config.vocab_size, (batch, length), generator=draw).to(model.device)
        made = latencies(
            model, prompts, chosen, choose, question.first_tokens, question.new_tokens, question.repeats
        )  # fmt: skip
        rows += [
            {"dtype": dtype, "batch": batch, "length": length, "heads": name, **each.data}
            for name, each in made.items()
        ]
    return Answer({}, "")


def _text(rows: list[dict[str, object]], question: LatencyQuestion) -> str:
    """A line for each precision, batch, length and choice of heads; how much faster than the full model."""
    shown = [["numbers", "batch", "length", "heads", "first token", "", "next token", "", "cache"]]
    full = rows[0]
    for row in rows:
        full = row if row["heads"] == "full" else full
        line = [str(row[name]) for name in ("dtype", "batch", "length", "heads")]
        for kind in _KINDS:
            value, beside = (float(str(each[f"{kind}_s"])) for each in (row, full))
            line += [format_seconds(value), f"x{beside / value:.2f}"]
        shown.append([*line, format_bytes(int(str(row["cache_bytes"])))])
    said = f"medians of {question.repeats} rounds in turns, {question.new_tokens - 1} next tokens in each"
    return f"{table(shown)}\n{said}; x: how many times as fast as the full model"
