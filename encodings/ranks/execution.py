"""A plan's modes in a training under DDP on processes of this machine, beside other modes: `gapless run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gapless.encodings.ranks.baselines import RULES, all_baselines
from gapless.encodings.ranks.parameters import DEFAULTS
from gapless.encodings.ranks.problem import Problem
from gapless.errors import InputError
from gapless.fields import Whole
from gapless.io.plan import SavedPlan
from gapless.io.record import Record, check_known
from gapless.plans_to_run import not_run, plan_to_run
from gapless.profiles.compression.trace_file import read_compression_trace
from gapless.profiles.compressors.grammar import method_of, sent_bytes
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.system import Answer, Session
from gapless.text import described, table

if TYPE_CHECKING:
    from gapless.torch.ddp.training import Trained, Variant

__all__ = ["Asked", "execute"]

_CONSTANT = "constant"


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
        record, details = Record(dict(plan.problem), f"{path}: problem"), Record(dict(plan.details), f"{path}: details")
        modes = list[tuple[str, ...]]()
        for number, phase in enumerate(details.records("phases")):
            row = tuple(str(mode) for mode in phase.array("modes"))
            for mode in row:
                method_of(mode)
            if len(row) != len(record.array("layers")):
                raise InputError(f"{path}: details: phases[{number}] must have a mode for each layer")
            modes += [row] * phase.integer("epochs", 1)
        shapes = [tuple(Whole(1)(length) for length in shape) for shape in record.array("shapes")]
        rates = [record.real("learning_rates", rate, 0) for rate in record.array("learning_rates")]
        found = cls(
            tuple(map(str, record.array("layers"))), tuple(shapes), tuple(record.integers("steps", 1)), tuple(rates),
            tuple(map(str, record.array("modes"))), tuple(modes),
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


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """What each run lost and sent, and whether it sent what was planned."""
    from gapless.torch.ddp.buckets import trainable
    from gapless.torch.ddp.training import Recipe, examples_of, train

    path = values["plan"]
    plan, report = plan_to_run(path, "ranks")
    if not report.valid:
        return not_run(report)
    asked = Asked.of(plan, path)
    recipe = Recipe(
        values["model"], session.options.seed, values["batch"], asked.learning_rates, values["momentum"],
        values["held_out"], values["workers"], values["wait"],
    )  # fmt: skip
    examples = examples_of(recipe)
    if {examples.steps} != set(asked.steps):
        rule = f"{recipe.workers} workers x batch {recipe.batch} make {examples.steps} steps of an epoch"
        raise InputError(f"batch: {rule}, the plan has {asked.steps[0]}; give what the trace was measured with")
    parameters = trainable(examples.work.model)
    for name, shape in zip(asked.layers, asked.shapes, strict=True):
        if name not in parameters or tuple(parameters[name].shape) != shape:
            raise InputError(f"parameter {name!r}: must be in the model in shape {list(shape)}, as in the plan")
    variants = _variants(values, asked, plan)
    session.say(f"training {len(variants)} times in {recipe.workers} processes ...")
    runs = train(recipe, variants, session.options.stop)
    rows = [_row(asked, variant, run) for variant, run in zip(variants, runs, strict=True)]
    data = {"workers": recipe.workers, "epochs": len(asked.modes), "steps": examples.steps, "rows": rows,
            "ledger_floats": report.spent[0]}  # fmt: skip
    is_valid = all(row["as_planned"] for row in rows) and rows[0]["planned_floats"] == report.spent[0]
    return Answer({**data, "valid": is_valid}, _text(data), is_valid=is_valid)


def _variants(values: Mapping[str, Any], asked: Asked, plan: SavedPlan) -> list[Variant]:
    """The plan, and what is to stand beside it."""
    from gapless.torch.ddp.training import Variant

    found = {"plan": asked.modes}
    beside = [name for name in values["beside"] if name != "none"]
    for name in beside:
        check_known("beside", name, (*RULES, "plain", "none"))
    if _CONSTANT in beside:
        found |= {f"constant {mode}": ((mode,) * len(asked.layers),) * len(asked.modes) for mode in asked.offered}
    if "plain" in beside:
        found["plain"] = (("plain",) * len(asked.layers),) * len(asked.modes)
    rules = [name for name in beside if name not in (_CONSTANT, "plain")]
    if rules and values["trace"] is None:
        raise InputError(f"trace: must be given for {rules[0]}, which goes by what was measured")
    if rules:
        trace = read_compression_trace(values["trace"])
        if trace.layer_names != asked.layers or trace.epoch_count != len(asked.modes):
            raise InputError(f"trace: {values['trace']} must be of the plan's layers and epochs")
        question = Problem(trace.in_modes(asked.offered), data_bytes=asked.sent_bytes(asked.modes), phases="epoch")
        for rule in all_baselines(question, asked.sent_bytes(asked.modes), DEFAULTS, 0):
            if rule.name in rules:
                found[rule.name] = tuple(tuple(asked.offered[mode] for mode in row) for row in rule.modes.tolist())
    return [Variant(name, asked.layers, modes) for name, modes in found.items()]


def _row(asked: Asked, variant: Variant, run: Trained) -> dict[str, Any]:
    planned = asked.sent_bytes(variant.modes)
    return {
        "name": run.name, "loss": run.loss[-1], "losses": list(run.loss), "train_loss": run.train_loss,
        "sent_floats": max(run.sent_bytes) / FLOAT_BYTES, "planned_floats": planned / FLOAT_BYTES,
        "as_planned": set(run.sent_bytes) == {planned},
    }  # fmt: skip


def _text(data: Mapping[str, Any]) -> str:
    rows = [["", "loss held out", "loss trained", "sent", "as planned"]]
    for row in data["rows"]:
        floats = described("sent_floats", row["sent_floats"])
        is_equal = "yes" if row["as_planned"] else described("planned_floats", row["planned_floats"])
        rows.append([row["name"], f"{row['loss']:.4f}", f"{row['train_loss']:.4f}", floats, is_equal])
    end = f"{data['epochs']} epochs of {data['steps']} steps, {data['workers']} workers; floats of each worker"
    return "\n".join([table(rows), end])
