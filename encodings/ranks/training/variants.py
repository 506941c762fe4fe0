"""What is trained beside a plan: constant modes, rules, and controllers that decide while the training runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gapless.encodings.ranks.baselines import RULES, all_baselines, hand_written_epochs
from gapless.encodings.ranks.decision import ModeDecision
from gapless.encodings.ranks.parameters import DEFAULTS
from gapless.encodings.ranks.problem import Problem
from gapless.encodings.ranks.question import RunQuestion
from gapless.encodings.ranks.training.corrected import CorrectedPlan
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.io.record import Record, check_known
from gapless.profiles.compression.control import Accordion, AccordionBatches, Detection
from gapless.profiles.compression.trace import CompressionTrace, read_compression_trace
from gapless.profiles.compressors.grammar import method_of, sent_bytes
from gapless.question.fields import Whole

if TYPE_CHECKING:
    from gapless.torch.ddp.training import Variant

__all__ = [
    "BATCHES",
    "CORRECTED",
    "ONLINE",
    "SWITCHING",
    "Asked",
    "accordion",
    "accordion_batches",
    "detection_of",
    "variants_of",
]

_CONSTANT, _PLAIN, _NONE = "constant", "plain", "none"
BATCHES, CORRECTED = "accordion-batches", "corrected"
SWITCHING = ("accordion", "reversed", BATCHES)
"""What goes by norms in the run."""
ONLINE = (*SWITCHING, CORRECTED)
"""What a controller decides in the run."""
_HAND_WRITTEN = ("hand-written", "hand-written-reversed")


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

    def sent_bytes(self, modes: Sequence[Sequence[str]], steps: Sequence[int] | None = None) -> int:
        """What a worker sends in all, recomputed from shapes; `steps`: of each epoch, if not the plan's."""
        return sum(
            count * sum(sent_bytes(mode, shape) for mode, shape in zip(row, self.shapes, strict=True))
            for count, row in zip(steps or self.steps, modes, strict=True)
        )

    @property
    def by_cost(self) -> list[str]:
        """Modes offered, from the one that sends least of all layers to the one that sends most."""
        sent = {mode: sum(sent_bytes(mode, shape) for shape in self.shapes) for mode in self.offered}
        return sorted(self.offered, key=lambda mode: sent[mode])


def accordion(low: str, high: str, detection: dict[str, object]) -> Accordion:
    """The controller of these modes, for a run."""
    return Accordion(low, high, Detection(**detection))  # type: ignore[arg-type]


def accordion_batches(low: int, high: int, detection: dict[str, object]) -> AccordionBatches:
    """The controller of these batches of a worker, for a run."""
    return AccordionBatches(low, high, Detection(**detection))  # type: ignore[arg-type]


def detection_of(question: RunQuestion) -> Detection:
    """When the run's phases are critical."""
    return Detection(question.eta, question.interval, question.warm_up)


def variants_of(question: RunQuestion, asked: Asked) -> list[Variant]:
    """The plan, and what is to stand beside it. Raises `InputError` naming what is missing."""
    from gapless.torch.ddp.training import Variant

    names = tuple(dict.fromkeys(name for name in question.beside if name != _NONE))
    for name in names:
        check_known("beside", name, (*RULES, BATCHES, CORRECTED, _PLAIN, _NONE))
    fixed = {"plan": asked.modes}
    if _CONSTANT in names:
        fixed |= {f"constant {mode}": _throughout(asked, mode) for mode in asked.offered}
    if _PLAIN in names:
        fixed[_PLAIN] = _throughout(asked, _PLAIN)
    fixed |= _written_by_hand([name for name in names if name in _HAND_WRITTEN], question, asked)
    rules = [name for name in names if name not in (_CONSTANT, _PLAIN, *ONLINE, *_HAND_WRITTEN)]
    fixed |= _rules_of_trace(rules, question, asked)
    online = [_online(name, question, asked) for name in names if name in ONLINE]
    return [*(Variant(name, asked.layers, modes) for name, modes in fixed.items()), *online]


_Modes = tuple[tuple[str, ...], ...]


def _throughout(asked: Asked, mode: str) -> _Modes:
    return ((mode,) * len(asked.layers),) * len(asked.modes)


def _online(name: str, question: RunQuestion, asked: Asked) -> Variant:
    from gapless.torch.ddp.training import Control, Variant

    high, low = asked.by_cost[0], asked.by_cost[-1]
    detection = asdict(detection_of(question))
    if name == BATCHES:
        if question.large_batch is None or question.large_batch <= question.batch:
            rule = f"must be given, and more than batch {question.batch}, for {name}"
            raise InputError(f"large_batch: {rule}, got {question.large_batch}")
        options = {"low": question.batch, "high": question.large_batch, "detection": detection}
        control = Control(f"{__name__}:accordion_batches", json.dumps(options))
        return Variant(name, asked.layers, _throughout(asked, _PLAIN), control=control)
    if name == CORRECTED:
        trace = _read_trace(name, question, asked)
        assert question.trace is not None
        CorrectedPlan.of(question.plan, question.trace, question.tolerance, question.looks)
        place = "gapless.encodings.ranks.training.corrected:corrected_plan"
        options = {"plan": str(Path(question.plan).resolve()), "trace": str(Path(question.trace).resolve()),
                   "tolerance": question.tolerance, "looks": question.looks}  # fmt: skip
        return Variant(name, trace.layer_names, asked.modes, control=Control(place, json.dumps(options)))
    if name == "reversed":
        low, high = high, low
    options = {"low": low, "high": high, "detection": detection}
    return Variant(name, asked.layers, asked.modes, control=Control(f"{__name__}:accordion", json.dumps(options)))


def _written_by_hand(names: Sequence[str], question: RunQuestion, asked: Asked) -> dict[str, _Modes]:
    high, low = asked.by_cost[0], asked.by_cost[-1]
    rates = np.array(asked.learning_rates)
    critical = hand_written_epochs(rates, question.first_epochs, question.decay_epochs)
    return {
        name: tuple((low if is_low == (name == "hand-written") else high,) * len(asked.layers)
                    for is_low in critical.tolist())
        for name in names
    }  # fmt: skip


def _rules_of_trace(names: Sequence[str], question: RunQuestion, asked: Asked) -> dict[str, _Modes]:
    """What rules make of the trace that the plan was made from."""
    if not names:
        return {}
    trace = _read_trace(names[0], question, asked)
    problem = Problem(trace.in_modes(asked.offered), data_bytes=asked.sent_bytes(asked.modes), phases="epoch")
    rules = all_baselines(problem, asked.sent_bytes(asked.modes), DEFAULTS, 0)
    return {
        rule.name: tuple(tuple(asked.offered[mode] for mode in row) for row in rule.modes.tolist())
        for rule in rules
        if rule.name in names
    }


def _read_trace(name: str, question: RunQuestion, asked: Asked) -> CompressionTrace:
    """The plan's trace, for what needs it."""
    if question.trace is None:
        raise InputError(f"trace: must be given for {name}, which goes by what was measured")
    trace = read_compression_trace(question.trace)
    if trace.layer_names != asked.layers or trace.epoch_count != len(asked.modes):
        raise InputError(f"trace: {question.trace} must be of the plan's layers and epochs")
    return trace
