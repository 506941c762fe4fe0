"""A training step with a sweep's plans, and with a library's algorithms: `gapless advise step`.

Layers are computed one after the other. A layer waits for its own collectives; a bucket of gradients is
sent while the backward pass goes on. The network carries out one collective at a time, in the order in which they are
ready. What collectives take from the device is left out, as are the optimiser and the loader of data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.question import StepQuestion, SweepQuestion
from gapless.encodings.taccl.sweep.curves import LIBRARIES, PLAN, Curves, read_curves
from gapless.encodings.taccl.sweep.request import request_of, sizes_between
from gapless.encodings.taccl.sweep.run import sweep
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.steps.profile import BACKWARD, TrainingStep, find_training_step
from gapless.question.parameters import parameters_of
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_seconds

__all__ = ["StepEstimate", "answer_step", "estimate_step"]

_FACTOR = 4
"""Between the sizes of a step that are planned; in between, times lie on lines."""


@dataclass(frozen=True)
class StepEstimate:
    """A step of `batch` samples. `step_s`, `network_s`: by who carries out the collectives, until all is done and for
    all collectives together. `speedup`: steps a second with the plans over those with each library's algorithms.
    """

    batch: int
    compute_s: float
    step_s: dict[str, float]
    network_s: dict[str, float]
    speedup: dict[str, float]


def estimate_step(step: TrainingStep, batch: int, curves: Mapping[str, Curves]) -> StepEstimate:
    """What a step takes by plans and by each library; `curves`: by the name of the collective.

    Raises `InputError` for a collective, or a size, that wasn't swept.
    """
    for name in step.sizes(batch):
        if name not in curves:
            raise InputError(f"sweep: must hold one of {name}, which {step.name} needs, got {', '.join(curves)}")
    ranks = {one.ranks for one in curves.values()}
    if len(ranks) > 1:
        raise InputError(f"sweep: must all be for one number of ranks, got {', '.join(map(str, sorted(ranks)))}")
    (count,) = ranks
    found = {who: _Timeline(curves, who).run(step, batch, count) for who in (PLAN, *LIBRARIES)}
    compute_s = found[PLAN].compute_s
    step_s = {who: timeline.end_s for who, timeline in found.items()}
    speedup = {who: step_s[who] / step_s[PLAN] for who in LIBRARIES}
    return StepEstimate(batch, compute_s, step_s, {who: one.network_s for who, one in found.items()}, speedup)


@dataclass
class _Timeline:
    """When the device and the network are through with what they had so far; `who` carries out the collectives."""

    curves: Mapping[str, Curves]
    who: str
    at_s: float = 0.0
    free_s: float = 0.0
    compute_s: float = 0.0
    network_s: float = 0.0

    @property
    def end_s(self) -> float:
        """When all is done."""
        return max(self.at_s, self.free_s)

    def run(self, step: TrainingStep, batch: int, ranks: int) -> _Timeline:
        """A forward and a backward pass."""
        for layer in step.layers:
            for _ in range(layer.count):
                self._compute(step.forward_s(layer, batch, ranks))
                for exchange in layer.forward:
                    self.at_s = self._send(exchange.collective, exchange.at(batch))
        for layer, buckets in step.backward_pass():
            self._compute(BACKWARD * step.forward_s(layer, batch, ranks))
            for exchange in layer.backward:
                self.at_s = self._send(exchange.collective, exchange.at(batch))
            for size_bytes in buckets:
                self._send("allreduce", size_bytes)
        return self

    def _compute(self, duration_s: float) -> None:
        self.at_s += duration_s
        self.compute_s += duration_s

    def _send(self, collective: str, size_bytes: float) -> float:
        """When a collective that is ready now is through."""
        duration_s = self.curves[collective].time_s(self.who, size_bytes)
        self.free_s = max(self.at_s, self.free_s) + duration_s
        self.network_s += duration_s
        return self.free_s


# -- the command -------------------------------------------------------------------------------------------------------


def answer_step(question: StepQuestion, session: Session) -> Answer:
    """Estimates for every batch, from sweeps that are there, or that are made first."""
    step, batches = find_training_step(question.step), sorted(set(question.batch))
    with ExitStack() as stack:
        folders = question.sweep or _swept(question, step, batches, session, stack)
        read = [read_curves(folder) for folder in folders]
    curves = {one.collective: one for one in read}
    rows = [estimate_step(step, batch, curves) for batch in batches]
    topology = ", ".join(dict.fromkeys(one.topology for one in read))
    data = {
        "step": step.name, "source": step.source, "topology": topology, "ranks": read[0].ranks,
        "sweeps": [str(folder) for folder in question.sweep or (question.output and folders) or ()],
        "rows": [asdict(row) for row in rows],
    }  # fmt: skip
    heads = ["batch", "compute", "network", *(f"by {who}s" for who in (PLAN, *LIBRARIES))]
    heads += [f"{who}s / plans" for who in LIBRARIES]
    cells = [
        [str(row.batch), *map(format_seconds, (row.compute_s, row.network_s[PLAN], *row.step_s.values())),
         *(f"{ratio:.2f}" for ratio in row.speedup.values())]
        for row in rows
    ]  # fmt: skip
    return Answer(data, f"{step.name} on {read[0].ranks} ranks of {topology}\n{table([heads, *cells])}")


def _swept(
    question: StepQuestion, step: TrainingStep, batches: list[int], session: Session, stack: ExitStack
) -> list[Path]:
    """Sweeps over what the step needs, a folder for each collective, an even share of the time each."""
    root = Path(question.output or stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-step-")))
    needed: dict[str, set[float]] = {}
    for batch in batches:
        for name, found in step.sizes(batch).items():
            needed.setdefault(name, set()).update(found)
    limit_s = session.options.time_limit_s
    options: SolveOptions = replace(session.options, time_limit_s=None if limit_s is None else limit_s / len(needed))
    folders = []
    for name, sizes in sorted(needed.items()):
        spread = sizes_between(int(min(sizes)), -int(-max(sizes) // 1), _FACTOR)
        asked = SweepQuestion(
            question.topology, topology_file=question.topology_file, nodes=question.nodes, sketch=question.sketch,
            collective=name, sizes=spread, output=str(root / name),
        )  # fmt: skip
        session.say(f"planning {name} at {len(spread)} sizes ...")
        request = replace(request_of(asked), parameters=parameters_of(Parameters, session.parameters))
        sweep(request, options, root / name)
        folders.append(root / name)
    return folders
