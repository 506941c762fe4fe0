"""`gapless run chai`: a plan in a language model, beside the full cache. Needs the extra `hf`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.encodings.chai.commands.opening import Opened, opened, tolerance_of
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.question import RunQuestion
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.torch.heads.generation import Comparison
    from gapless.torch.heads.models import LanguageModel

__all__ = ["execute"]


def execute(question: RunQuestion, session: Session) -> Answer:
    """Tokens, logits, cache, loss and speed beside those of the full model."""
    return opened(question, session, question.dtype, lambda found: _compared(found, question, session))


def _compared(opened: Opened, question: RunQuestion, session: Session) -> Answer:
    from gapless.torch.heads.generation import compare

    model, chosen = opened.model, opened.chosen
    sequences = opened.sequences(question.text, question.sequence, question.sequences)
    prompt = opened.sequences(question.text, question.prompt, 1)[0]
    found = compare(model, chosen.kept, chosen.representative, prompt, question.new_tokens, sequences, session.say)
    run = _Run(
        found, len(prompt), question.new_tokens, *_cache_bytes(model, chosen, found, len(prompt)), question.dtype
    )
    asked = {
        "model": question.model,
        "dtype": question.dtype,
        "plan": question.plan,
        "prompt": run.prompt,
        "new_tokens": run.new_tokens,
    }
    return Answer({**run.data, **asked, "loss_tokens": sequences.numel()}, run.text, is_valid=run.is_valid)


def _cache_bytes(model: LanguageModel, chosen: HeadMap, found: Comparison, prompt: int) -> tuple[int, int]:
    """What a plan's cache and a full one hold once all tokens but the last are in them."""
    cached, first = prompt + len(found.full.tokens) - 1, model.layers[0]
    head_bytes = cached * first.dimension * found.full.logits.element_size()
    everything = len(model.layers) * first.key_heads
    return (int(chosen.counts.sum()) + everything) * head_bytes, 2 * everything * head_bytes


@dataclass(frozen=True)
class _Run:
    """What the models did with a prompt of so many tokens; what their caches should hold."""

    found: Comparison
    prompt: int
    new_tokens: int
    planned_bytes: int
    full_bytes: int
    dtype: str

    @property
    def is_valid(self) -> bool:
        """Whether logits are equal, and the caches as planned."""
        is_equal = self.found.logit_difference <= tolerance_of(self.dtype, self.found.largest_logit)
        return is_equal and self.is_planned and self.found.full.cache_bytes == self.full_bytes

    @property
    def is_planned(self) -> bool:
        """Whether the plan's cache holds what it should."""
        return self.found.shared.cache_bytes == self.planned_bytes

    @property
    def saving(self) -> float:
        """Of the full cache."""
        return 1 - self.found.shared.cache_bytes / self.found.full.cache_bytes

    @property
    def equal_tokens(self) -> int:
        """How many are the full model's."""
        return int((self.found.shared.tokens == self.found.full.tokens).sum())

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        found = self.found
        return {
            "valid": self.is_valid,
            "logit_difference": found.logit_difference,
            "largest_logit": found.largest_logit,
            "planned_cache_bytes": self.planned_bytes,
            "cache_bytes": found.shared.cache_bytes,
            "full_cache_bytes": found.full.cache_bytes,
            "kv_saving": self.saving,
            "loss": found.losses[1],
            "full_loss": found.losses[0],
            "equal_tokens": self.equal_tokens,
            "token_s": found.shared.median_s,
            "full_token_s": found.full.median_s,
        }

    @property
    def text(self) -> str:
        """Caches, losses and speeds as a table, then what the plan saves and how far it is from the full model."""
        found, rows = self.found, [["", "cache", "loss", "tokens/s"]]
        for name, each, loss in zip(("full", "plan"), (found.full, found.shared), found.losses, strict=True):
            rows.append([name, format_bytes(each.cache_bytes), f"{loss:.4f}", f"{1 / each.median_s:.1f}"])
        planned = "as planned" if self.is_planned else f"planned were {format_bytes(self.planned_bytes)}"
        differ = f"logits differ by {found.logit_difference:.2g}"
        return "\n".join([
            table(rows),
            f"cache after {self.prompt} + {self.new_tokens - 1} tokens: {self.saving:.1%} saved, {planned}",
            f"{differ} from those of the model with copied rows of queries and keys",
            f"{self.equal_tokens} of {self.new_tokens} tokens are the full model's",
        ])  # fmt: skip
