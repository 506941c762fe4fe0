"""Trainings under DDP on processes of this machine; needs the extra `torch`.

`gapless run ranks`: with a plan's modes, beside other modes. `gapless profile compression`: with plain gradients, to
record what each mode would spoil.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.ranks.baselines import RULES, all_baselines
from gapless.encodings.ranks.decision import ModeDecision
from gapless.encodings.ranks.parameters import DEFAULTS
from gapless.encodings.ranks.problem import Problem
from gapless.encodings.ranks.question import ProfileQuestion, RunQuestion, TrainingQuestion
from gapless.errors import InputError
from gapless.io.atomic import check_writable
from gapless.io.plan import SavedPlan
from gapless.io.record import Record, check_known
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.profiles.compression.trace import (
    CompressionTrace,
    check_trace_name,
    read_compression_trace,
    write_compression_trace,
)
from gapless.profiles.compressors.grammar import method_of, sent_bytes
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.question.fields import Whole
from gapless.report.text import described, table
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.ddp.measuring import Gradients
    from gapless.torch.ddp.training import Recipe, Trained, Variant

__all__ = ["Asked", "execute", "profile_compression", "recorded_trace"]

_CONSTANT = "constant"
_RANKS = (1, 2, 4, 8)
"""Of PowerSGD, whose errors are recorded unless modes are named."""


@dataclass(frozen=True)
class Asked:
    """What a plan says of the training that it is for: layers, shapes, steps and learning rates by epoch, modes."""

    layers: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    steps: tuple[int, ...]
    learning_rates: tuple[float, ...]
    offered: tuple[str, ...]
    modes: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, plan: SavedPlan, path: str) -> Asked:
        """Of a plan. Raises `InputError` naming the file and the field."""
        record, modes = Record(dict(plan.problem), f"{path}: problem"), ModeDecision.of(plan, path).by_epoch
        for mode in dict.fromkeys(mode for row in modes for mode in row):
            method_of(mode)
        if len(modes[0]) != len(record.array("layers")):
            raise InputError(f"{path}: phases must have a mode for each layer")
        shapes = [tuple(Whole(1)(length) for length in shape) for shape in record.lists("shapes", "a list of shapes")]
        rates = [record.real("learning_rates", rate, 0) for rate in record.array("learning_rates")]
        found = cls(
            tuple(map(str, record.array("layers"))), tuple(shapes), tuple(record.integers("steps", 1)), tuple(rates),
            tuple(map(str, record.array("modes"))), modes,
        )  # fmt: skip
        if not len(found.steps) == len(rates) == len(modes) or len(shapes) != len(found.layers):
            raise InputError(f"{path}: steps, learning_rates and phases must have one length, and shapes one a layer")
        return found

    def sent_bytes(self, modes: Sequence[Sequence[str]]) -> int:
        """What a worker sends in all, recomputed from shapes."""
        return sum(
            steps * sum(sent_bytes(mode, shape) for mode, shape in zip(row, self.shapes, strict=True))
            for steps, row in zip(self.steps, modes, strict=True)
        )


def execute(question: RunQuestion, session: Session) -> Answer:
    """What each run lost and sent, and whether it sent what was planned."""
    from gapless.torch.ddp.buckets import trainable
    from gapless.torch.ddp.training import examples_of, train

    path = question.plan
    plan, report = plan_to_run(path, "ranks")
    if not report.valid:
        return not_run(report)
    asked = Asked.of(plan, path)
    recipe = _recipe(question, session, asked.learning_rates)
    examples = examples_of(recipe)
    if {examples.steps} != set(asked.steps):
        rule = f"{recipe.workers} workers x batch {recipe.batch} make {examples.steps} steps of an epoch"
        raise InputError(f"batch: {rule}, the plan has {asked.steps[0]}; give what the trace was measured with")
    parameters = trainable(examples.work.model)
    for name, shape in zip(asked.layers, asked.shapes, strict=True):
        if name not in parameters or tuple(parameters[name].shape) != shape:
            raise InputError(f"parameter {name!r}: must be in the model in shape {list(shape)}, as in the plan")
    variants = _variants(question, asked)
    session.say(f"training {len(variants)} times in {recipe.workers} processes ...")
    runs = train(recipe, variants, session.options.stop)
    rows = [_row(asked, variant, run) for variant, run in zip(variants, runs, strict=True)]
    data = {"workers": recipe.workers, "epochs": len(asked.modes), "steps": examples.steps, "rows": rows,
            "ledger_floats": report.spent[0]}  # fmt: skip
    is_valid = all(row["as_planned"] for row in rows) and rows[0]["planned_floats"] == report.spent[0]
    return Answer({**data, "valid": is_valid}, _run_text(data), is_valid=is_valid)


def _recipe(
    question: TrainingQuestion, session: Session, learning_rates: tuple[float, ...], samples: int = 1
) -> Recipe:
    """How all runs are trained."""
    from gapless.torch.ddp.training import Recipe

    return Recipe(
        question.model, session.options.seed, question.batch, learning_rates, question.momentum, question.held_out,
        question.workers, question.wait, samples,
    )  # fmt: skip


def _variants(question: RunQuestion, asked: Asked) -> list[Variant]:
    """The plan, and what is to stand beside it."""
    from gapless.torch.ddp.training import Variant

    found = {"plan": asked.modes}
    beside = [name for name in question.beside if name != "none"]
    for name in beside:
        check_known("beside", name, (*RULES, "plain", "none"))
    if _CONSTANT in beside:
        found |= {f"constant {mode}": ((mode,) * len(asked.layers),) * len(asked.modes) for mode in asked.offered}
    if "plain" in beside:
        found["plain"] = (("plain",) * len(asked.layers),) * len(asked.modes)
    rules = [name for name in beside if name not in (_CONSTANT, "plain")]
    if rules:
        if question.trace is None:
            raise InputError(f"trace: must be given for {rules[0]}, which goes by what was measured")
        trace = read_compression_trace(question.trace)
        if trace.layer_names != asked.layers or trace.epoch_count != len(asked.modes):
            raise InputError(f"trace: {question.trace} must be of the plan's layers and epochs")
        problem = Problem(trace.in_modes(asked.offered), data_bytes=asked.sent_bytes(asked.modes), phases="epoch")
        for rule in all_baselines(problem, asked.sent_bytes(asked.modes), DEFAULTS, 0):
            if rule.name in rules:
                found[rule.name] = tuple(tuple(asked.offered[mode] for mode in row) for row in rule.modes.tolist())
    return [Variant(name, asked.layers, modes) for name, modes in found.items()]


def _row(asked: Asked, variant: Variant, run: Trained) -> dict[str, object]:
    planned = asked.sent_bytes(variant.modes)
    return {
        "name": run.name, "loss": run.loss[-1], "losses": list(run.loss), "train_loss": run.train_loss,
        "sent_floats": max(run.sent_bytes) / FLOAT_BYTES, "planned_floats": planned / FLOAT_BYTES,
        "as_planned": set(run.sent_bytes) == {planned},
    }  # fmt: skip


def _run_text(data: Mapping[str, Any]) -> str:
    rows = [["", "loss held out", "loss trained", "sent", "as planned"]]
    for row in data["rows"]:
        floats = described("sent_floats", row["sent_floats"])
        is_equal = "yes" if row["as_planned"] else described("planned_floats", row["planned_floats"])
        rows.append([row["name"], f"{row['loss']:.4f}", f"{row['train_loss']:.4f}", floats, is_equal])
    end = f"{data['epochs']} epochs of {data['steps']} steps, {data['workers']} workers; floats of each worker"
    return "\n".join([table(rows), end])


_REPEATS = 5
"""How often a mode is timed on a layer."""


def profile_compression(question: ProfileQuestion, session: Session) -> Answer:
    """Train once with plain gradients, record what the modes would spoil, and write the trace."""
    check_trace_name(question.output)
    check_writable(question.output)
    measured = tuple(question.compressors or ())
    ranks = question.ranks or (() if measured else _RANKS)
    modes = tuple(dict.fromkeys((*(f"powersgd:{rank}" for rank in ranks), *measured)))
    recipe = _recipe(question, session, _learning_rates(question), question.samples)
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


def _learning_rates(question: ProfileQuestion) -> tuple[float, ...]:
    """Of each epoch. Raises `InputError` for a decay that comes too late."""
    late = next((epoch for epoch in question.decay or () if epoch >= question.epochs), None)
    if late is not None:
        raise InputError(f"decay: must be epochs in 1..{question.epochs - 1}, got {late}")
    decays = [sum(epoch >= at for at in question.decay or ()) for epoch in range(question.epochs)]
    return tuple(question.learning_rate * 10.0**-count for count in decays)


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
