"""`gapless run ranks`: trainings under DDP on processes of this machine, with a plan's modes beside others.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.ranks.question import RunQuestion
from gapless.encodings.ranks.training.pictures import draw_regimes
from gapless.encodings.ranks.training.tracing import recipe_of
from gapless.encodings.ranks.training.variants import (
    BATCHES,
    CORRECTED,
    ONLINE,
    SWITCHING,
    Asked,
    detection_of,
    variants_of,
)
from gapless.errors import InputError
from gapless.plot.style import check_plot, save
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.profiles.compression.control import critical_epochs
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.profiles.gradients.network_question import LATENCY_S
from gapless.report.text import described, table
from gapless.system import Answer, Session
from gapless.units import format_seconds

if TYPE_CHECKING:
    from gapless.torch.ddp.training import Examples, Recipe, Trained

__all__ = ["execute", "loss_at_equal_data"]


def execute(question: RunQuestion, session: Session) -> Answer:
    """What each run lost and sent, and whether it sent what was planned."""
    from gapless.torch.ddp.training import examples_of, train

    path = question.plan
    if question.plot is not None:
        check_plot(question.plot)
        if not set(ONLINE) & set(question.beside):
            raise InputError(f"plot: draws what decides in the run; give one of {', '.join(ONLINE)} among --beside")
    if question.latency is not None and question.bandwidth is None:
        raise InputError("latency: is of the emulated wire; give bandwidth too")
    plan, report = plan_to_run(path, "ranks")
    if not report.valid:
        return not_run(report)
    asked = Asked.of(plan, path)
    recipe = replace(
        recipe_of(question, session, asked.learning_rates), bytes_per_s=question.bandwidth or 0.0,
        latency_s=LATENCY_S if question.latency is None else question.latency,
    )  # fmt: skip
    examples = examples_of(recipe)
    _check_training(asked, recipe, examples)
    variants = variants_of(question, asked)
    if any(variant.name == BATCHES for variant in variants):
        assert question.large_batch is not None
        next(examples.batches(recipe, 0, 0, question.large_batch))  # refuses a batch that the data don't fill
    session.say(f"training {len(variants)} times in {recipe.workers} processes ...")
    runs = train(recipe, variants, session.options.stop)
    rows = [_row(asked, run) for run in runs]
    _add_equal_data(rows)
    _add_corrections(asked, rows)
    _add_critical(question, asked, rows)
    notes = _warnings(question, asked, runs)
    data = {"workers": recipe.workers, "epochs": len(asked.modes), "steps": examples.steps, "rows": rows,
            "layers": list(asked.layers), "modes": asked.by_cost, "learning_rates": list(asked.learning_rates),
            "plot": question.plot, "ledger_floats": report.spent[0], "warnings": list(notes),
            "bandwidth_bytes_per_s": question.bandwidth}  # fmt: skip
    if question.plot is not None:
        save(draw_regimes(data), question.plot)
    is_valid = all(row["as_planned"] for row in rows) and rows[0]["planned_floats"] == report.spent[0]
    return Answer({**data, "valid": is_valid}, _run_text(data), notes, is_valid=is_valid)


def _check_training(asked: Asked, recipe: Recipe, examples: Examples) -> None:
    """Raise `InputError` for another training than the plan's."""
    from gapless.torch.ddp.buckets import trainable

    if {examples.steps} != set(asked.steps):
        rule = f"{recipe.workers} workers x batch {recipe.batch} make {examples.steps} steps of an epoch"
        raise InputError(f"batch: {rule}, the plan has {asked.steps[0]}; give what the trace was measured with")
    parameters = trainable(examples.work.model)
    for name, shape in zip(asked.layers, asked.shapes, strict=True):
        if name not in parameters or tuple(parameters[name].shape) != shape:
            raise InputError(f"parameter {name!r}: must be in the model in shape {list(shape)}, as in the plan")


def _row(asked: Asked, run: Trained) -> dict[str, Any]:
    """What a run lost and sent; `planned_floats`: what its modes send by their shapes, with what looks took."""
    planned = asked.sent_bytes(run.modes, run.steps) + run.looked_bytes
    switches = sum(old != new for old, new in pairwise(run.modes))
    return {
        "name": run.name, "loss": run.loss[-1], "losses": list(run.loss), "train_loss": run.train_loss,
        "sent_floats": max(run.sent_bytes) / FLOAT_BYTES, "planned_floats": planned / FLOAT_BYTES,
        "looked_floats": run.looked_bytes / FLOAT_BYTES, "as_planned": set(run.sent_bytes) == {planned},
        "train_s": run.train_s, "cpu_s": run.cpu_s, "wire_s": run.wire_s, "switches": switches,
        "steps": list(run.steps), "modes": [list(row) for row in run.modes], "norms": [list(row) for row in run.norms],
    }  # fmt: skip


def loss_at_equal_data(points: Sequence[tuple[float, float]], floats: float) -> float | None:
    """The loss of constant modes at so many floats, between the two (floats, loss) around it; None outside of them."""
    ordered = sorted(points)
    if len(ordered) < 2 or not ordered[0][0] <= floats <= ordered[-1][0]:
        return None
    return float(np.interp(floats, [sent for sent, _ in ordered], [loss for _, loss in ordered]))


def _add_equal_data(rows: Sequence[dict[str, Any]]) -> None:
    constants = [(row["sent_floats"], row["loss"]) for row in rows if row["name"].startswith("constant ")]
    for row in rows:
        row["constant_loss"] = loss_at_equal_data(constants, row["sent_floats"])


def _add_corrections(asked: Asked, rows: Sequence[dict[str, Any]]) -> None:
    """Of the corrected plan, the epochs that had other modes than the plan."""
    for row in rows:
        if row["name"] == CORRECTED:
            pairs = zip(row["modes"], asked.modes, strict=True)
            row["changed_epochs"] = [epoch for epoch, (now, old) in enumerate(pairs) if tuple(now) != old]


def _add_critical(question: RunQuestion, asked: Asked, rows: Sequence[dict[str, Any]]) -> None:
    """Of each run with norms, by epoch: whether each layer's phase is critical by the rule; of batches, the model's."""
    for row in rows:
        norms = np.array(row["norms"])
        if row["name"] == BATCHES:
            norms = np.linalg.norm(norms, axis=1, keepdims=True)
        rates = np.array(asked.learning_rates)
        row["critical"] = critical_epochs(norms, rates, detection_of(question)).tolist() if len(norms) else []


def _warnings(question: RunQuestion, asked: Asked, runs: Sequence[Trained]) -> tuple[str, ...]:
    """A line for each rule that switched nothing, with what could make it."""
    detection, lines = detection_of(question), []
    for run in runs:
        if run.name not in SWITCHING or len(set(run.modes)) > 1 or len(set(run.steps)) > 1:
            continue
        epochs = len(asked.modes)
        if epochs <= min(detection.warm_epochs, detection.first_compared):
            compared = f"looks are {detection.interval} epochs apart, so that two are compared after"
            why = f"{compared} {detection.first_compared} epochs, and there are {epochs}"
            advice = f"give --interval {max(1, (epochs - 1) // 2)} or less" if epochs > 2 else "train for more epochs"
        else:
            why, advice = f"no verdict changed at a threshold of {detection.threshold:g}", "give another --eta"
        sent = "one batch size" if run.name == BATCHES else ", ".join(sorted(set(run.modes[0])))
        lines.append(f"warning: {run.name} never switched ({sent} throughout): {why}; {advice}")
    return tuple(lines)


def _run_text(data: Mapping[str, Any]) -> str:
    has_constants = any(row["constant_loss"] is not None for row in data["rows"])
    has_wire = data["bandwidth_bytes_per_s"] is not None
    titles = ["", "loss held out", *(["constant, equal data"] if has_constants else []), "loss trained", "sent",
              "as planned", "switches", "trained in", *(["on the wire"] if has_wire else [])]  # fmt: skip
    rows = [titles]
    for row in data["rows"]:
        floats = described("sent_floats", row["sent_floats"])
        is_equal = "yes" if row["as_planned"] else described("planned_floats", row["planned_floats"])
        equal = ["-" if row["constant_loss"] is None else f"{row['constant_loss']:.4f}"] if has_constants else []
        wire = [format_seconds(row["wire_s"])] if has_wire else []
        rows.append([row["name"], f"{row['loss']:.4f}", *equal, f"{row['train_loss']:.4f}", floats, is_equal,
                     str(row["switches"]), format_seconds(row["train_s"]), *wire])  # fmt: skip
    corrected = [
        f"corrected: {len(row['changed_epochs'])} epochs in other modes than the plan's; looks sent "
        f"{described('looked_floats', row['looked_floats'])} of all"
        for row in data["rows"] if row["name"] == CORRECTED
    ]  # fmt: skip
    end = f"{data['epochs']} epochs of {data['steps']} steps, {data['workers']} workers; floats of each worker"
    return "\n".join([table(rows), *corrected, *_critical_lines(data["rows"]), end])


def _critical_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """In which epochs, counted from 0 as decays are, phases are critical by the rule."""
    lines = []
    for row in rows:
        shares = np.array(row["critical"]).mean(axis=1) if row["critical"] else np.zeros(0)
        if len(shares):
            parts = [f"{_spans(shares == 1)} in all layers", f"{_spans((shares > 0) & (shares < 1))} in some"]
            lines.append(f"{row['name']}: critical by the rule in epochs {'; '.join(parts)}")
    return lines


def _spans(epochs: NDArray[np.bool_]) -> str:
    """Runs of epochs, such as 0-3, 8; none where there are none."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], epochs, [False]]).astype(int)))
    spans = zip(edges[::2], edges[1::2] - 1, strict=True)
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans) or "none"
