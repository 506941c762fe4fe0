"""A trace made by training: once under DDP with plain gradients, what each mode would spoil is recorded.

Needs the extra `torch`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.ranks.question import ProfileQuestion, RatesQuestion, TrainingQuestion
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.profiles.compression.trace import CompressionTrace, check_trace_name, write_compression_trace
from gapless.profiles.compressors.grammar import sent_bytes
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.report.text import described, table
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.ddp.measuring import Gradients
    from gapless.torch.ddp.training import Recipe

__all__ = ["learning_rates", "profile_compression", "recipe_of", "recorded_trace"]

_RANKS = (1, 2, 4, 8)
"""Of PowerSGD, whose errors are recorded unless modes are named."""


def recipe_of(
    question: TrainingQuestion, session: Session, learning_rates: tuple[float, ...], samples: int = 1
) -> Recipe:
    """How all runs are trained."""
    from gapless.torch.ddp.training import Recipe

    return Recipe(
        question.model, session.options.seed, question.batch, learning_rates, question.momentum, question.held_out,
        question.workers, question.wait, samples,
    )  # fmt: skip


_REPEATS = 5
"""How often a mode is timed on a layer."""


def profile_compression(question: ProfileQuestion, session: Session) -> Answer:
    """Train once with plain gradients, record what the modes would spoil, and write the trace."""
    check_trace_name(question.output)
    check_writable(question.output)
    measured = tuple(question.compressors or ())
    ranks = question.ranks or (() if measured else _RANKS)
    modes = tuple(dict.fromkeys((*(f"powersgd:{rank}" for rank in ranks), *measured)))
    recipe = recipe_of(question, session, learning_rates(question), question.samples)
    session.say(f"training {question.model} for {question.epochs} epochs in {question.workers} processes ...")
    trace, loss = recorded_trace(recipe, modes, measured, session)
    write_compression_trace(question.output, trace)
    sent = trace.steps.sum() * trace.sent_bytes.sum(axis=0) / FLOAT_BYTES
    errors = (trace.weight[:, None, None] * trace.error).sum(axis=(0, 1))
    rows = [
        {"mode": mode, "sent_floats": floats, "error": error}
        for mode, floats, error in zip(trace.modes, sent.tolist(), errors.tolist(), strict=True)
    ]
    data = {
        "trace": trace.name, "source": trace.source, "epochs": trace.epoch_count, "layers": trace.layer_count,
        "loss": loss, "modes": rows, "output": question.output,
    }  # fmt: skip
    return Answer(data, _trace_text(data))


def learning_rates(question: RatesQuestion) -> tuple[float, ...]:
    """Of each epoch. Raises `InputError` for a decay that comes too late."""
    late = next((epoch for epoch in question.decay or () if epoch >= question.epochs), None)
    if late is not None:
        raise InputError(f"decay: must be epochs in 1..{question.epochs - 1}, got {late}")
    decays = [sum(epoch >= at for at in question.decay or ()) for epoch in range(question.epochs)]
    rising = question.rate_warm_up or 0
    shares = [min(1.0, (epoch + 1) / rising) if rising else 1.0 for epoch in range(question.epochs)]
    return tuple(question.learning_rate * share * 10.0**-count for share, count in zip(shares, decays, strict=True))


def recorded_trace(
    recipe: Recipe, modes: Sequence[str], measured: Sequence[str], session: Session
) -> tuple[CompressionTrace, float]:
    """The trace of a training, and its loss on what is held out; `measured`: modes that aren't judged by tails."""
    from gapless.torch.ddp.measuring import measure_gradients
    from gapless.torch.ddp.training import Variant, examples_of, train

    for mode in modes:
        sent_bytes(mode, (1,))  # refused before anything is trained
    examples = examples_of(recipe)
    first = examples.batch(slice(0, recipe.batch))
    gradients = measure_gradients(examples.work.model, first.loss_of, _REPEATS)
    plain = (("plain",) * len(gradients.names),) * len(recipe.learning_rate)
    (run,) = train(
        recipe, [Variant("plain", gradients.names, plain, tuple(modes), tuple(measured))], session.options.stop
    )
    looked = f"{min(recipe.samples, examples.steps)} of {examples.steps} steps of an epoch looked at"
    how = (
        f"trained with plain gradients by {recipe.workers} workers x batch {recipe.batch}, seed {recipe.seed}; {looked}"
    )
    return CompressionTrace(
        name=recipe.model,
        layer_names=gradients.names,
        shapes=gradients.shapes,
        modes=tuple(modes),
        steps=np.full(len(recipe.learning_rate), examples.steps, dtype=np.int64),
        learning_rate=np.array(recipe.learning_rate),
        error=np.array(run.record["error"]),
        norm=np.array(run.record["norm"]),
        deviation_ratio=np.array(run.record["deviation_ratio"]),
        forward_s=gradients.forward_s,
        backward_s=np.array(gradients.gaps_s),
        compress_s=_compress_s(gradients, modes),
        source=how,
    ), run.loss[-1]


def _compress_s(gradients: Gradients, modes: Sequence[str]) -> NDArray[np.float64]:
    """What a worker computes to send each layer in each mode, float, shape (L, M): the median of some runs.

    What is sent whole in several modes takes the same time in all of them.
    """
    from gapless.torch.compression import left_behind
    from gapless.torch.library import torch

    known: dict[tuple[str, int, tuple[int, ...]], float] = {}
    for shape in gradients.shapes:
        gradient = torch.randn(shape)
        for mode in modes:
            key = (mode.partition(":")[0], sent_bytes(mode, shape), shape)
            if key in known:
                continue
            memory: dict[str, object] = {}
            taken = []
            for _ in range(_REPEATS):
                begin_s = time.perf_counter()
                left_behind(mode, gradient, memory)
                taken.append(time.perf_counter() - begin_s)
            known[key] = statistics.median(taken)
    return np.array([
        [known[mode.partition(":")[0], sent_bytes(mode, shape), shape] for mode in modes] for shape in gradients.shapes
    ])  # fmt: skip


def _trace_text(data: Mapping[str, Any]) -> str:
    rows = [["mode", "sends in all", "error"]]
    for row in data["modes"]:
        rows.append([row["mode"], described("sent_floats", row["sent_floats"]), f"{row['error']:.4g}"])
    end = f"{data['epochs']} epochs of {data['layers']} layers; loss of what is held out {data['loss']:.4f}"
    return "\n".join([table(rows), end, data["source"]])
