"""`gapless run cache`: a plan in a language model, beside the full cache. Needs the extra `hf`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.encodings.cache.commands.prediction import Prediction
from gapless.encodings.cache.decision import CacheDecision
from gapless.encodings.cache.question import RunQuestion
from gapless.io.record import Record
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.torch.cache.generation import Comparison
    from gapless.torch.cache.measurement import Measured

__all__ = ["execute"]

_TOLERANCE = 1e-3
"""Of logits in single precision, of the largest of them: sums are in another order, and a number at the edge of two
codes may take either."""


def execute(question: RunQuestion, session: Session) -> Answer:
    """Bytes, speed and what is spoiled, beside the full cache and what was predicted."""
    plan, report = plan_to_run(question.plan, "cache")
    if not report.valid:
        return not_run(report)
    from gapless.torch.heads.models import load_language_model, sequences_of  # names the extra that is missing

    decision = CacheDecision.of(plan, question.plan)
    model = load_language_model(question.model, session.options.seed, question.device, question.dtype)
    from gapless.torch.cache.generation import compare
    from gapless.torch.cache.measurement import FullModel

    tokens, where = model.tokens(question.text), f"text: {question.text}"
    prompts = sequences_of(tokens, question.prompt, question.batch, where)
    sequences = sequences_of(tokens, question.sequence, question.sequences, where)
    found = compare(model, decision.layers, decision.layout, prompts, question.new_tokens, session.say)
    session.say("what the plan spoils ...")
    full = FullModel(model, sequences, decision.layout)
    cached = question.prompt + question.new_tokens - 1
    size = found.plan.logits.element_size()
    planned = len(prompts) * sum(each.cache_bytes(decision.layout, cached, size) for each in decision.layers)
    whole = len(prompts) * sum(each.cache_bytes(decision.layout, cached, size) for each in full.full)
    predicted = Record(dict(plan.details), f"{question.plan}: details").number("error", 0)
    measure = Record(dict(plan.problem), f"{question.plan}: problem").text("measure")
    measured, own = full.measured(decision.layers), None
    if question.calibration is not None:
        text, source = model.tokens(question.calibration), f"calibration: {question.calibration}"
        profiled = FullModel(model, sequences_of(text, question.sequence, question.sequences, source), decision.layout)
        own = _error(measure, profiled.measured(decision.layers), profiled.loss)
    prediction = Prediction(measure, predicted, _error(measure, measured, full.loss), own)
    run = _Run(found, measured, full.loss, prediction, planned, whole, cached, question.dtype)
    asked = {name: getattr(question, name) for name in ("model", "dtype", "plan", "prompt", "new_tokens")}
    return Answer({**run.data, **asked, "batch": len(prompts)}, run.text, is_valid=run.is_valid)


def _error(measure: str, measured: Measured, full_loss: float) -> float:
    return measured.divergence if measure == "divergence" else measured.loss - full_loss


@dataclass(frozen=True)
class _Run:
    """What the model did, what its caches should hold with so many tokens `cached`, what was predicted."""

    found: Comparison
    measured: Measured
    full_loss: float
    prediction: Prediction
    planned_bytes: int
    full_bytes: int
    cached: int
    dtype: str

    @property
    def is_valid(self) -> bool:
        """Whether the caches are as planned; in single precision, whether logits are those of the simulation."""
        is_equal = self.found.logit_difference <= _TOLERANCE * max(1.0, self.found.largest_logit)
        return self.is_planned and (is_equal or self.dtype != "float32")

    @property
    def is_planned(self) -> bool:
        """Whether both caches hold what they should."""
        return (self.found.plan.cache_bytes, self.found.full.cache_bytes) == (self.planned_bytes, self.full_bytes)

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        found = self.found
        return {
            "valid": self.is_valid,
            "cache_bytes": found.plan.cache_bytes,
            "planned_cache_bytes": self.planned_bytes,
            "full_cache_bytes": found.full.cache_bytes,
            "saved": 1 - found.plan.cache_bytes / found.full.cache_bytes,
            "logit_difference": found.logit_difference,
            "largest_logit": found.largest_logit,
            "measure": self.prediction.measure,
            "predicted_error": self.prediction.predicted,
            "measured_error": self.prediction.measured,
            "calibration_error": self.prediction.own,
            "divergence": self.measured.divergence,
            "loss": self.measured.loss,
            "full_loss": self.full_loss,
            "equal_tokens": int((found.plan.tokens == found.full.tokens).sum()),
            "token_s": found.plan.median_s,
            "full_token_s": found.full.median_s,
        }

    @property
    def text(self) -> str:
        """Caches, losses and speeds as a table, then what was predicted and what came out."""
        found, rows = self.found, [["", "cache", "loss", "steps/s"]]
        for name, each, loss in (("full", found.full, self.full_loss), ("plan", found.plan, self.measured.loss)):
            rows.append([name, format_bytes(each.cache_bytes), f"{loss:.4f}", f"{1 / each.median_s:.1f}"])
        planned = "as planned" if self.is_planned else f"planned were {format_bytes(self.planned_bytes)}"
        rise, data = self.measured.loss - self.full_loss, self.data
        return "\n".join([
            table(rows),
            f"cache of {self.cached} tokens: {data['saved']:.1%} saved, {planned}",
            self.prediction.text,
            f"rise of the loss {rise:.3g}, divergence {self.measured.divergence:.3g}",
            f"logits differ by {found.logit_difference:.2g} from those of one pass over all tokens",
            f"{data['equal_tokens']} of {found.plan.tokens.numel()} tokens are the full model's",
        ])  # fmt: skip
