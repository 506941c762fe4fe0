"""`gapless run chai-requests`: heads clustered anew for each request, with a plan's counts. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.clusters import clustered_map, least_map
from gapless.encodings.chai.commands.run import check_model, tolerance_of
from gapless.encodings.chai.head_map import HeadMap, map_of
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.question import RequestsQuestion
from gapless.errors import InputError
from gapless.io.record import Record
from gapless.options import Deadline
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.torch.heads.models import LanguageModel
    from gapless.torch.heads.requests import Choose, Served
    from gapless.torch.library import Tensor

__all__ = ["MAPS", "execute_requests"]

Floats = NDArray[np.float64]

MAPS = {
    "full": "all heads",
    "static": "the plan's map for all requests",
    "request": "k-means on the scores of the first tokens",
    "request-least": "the least error on the scores of the first tokens",
    "hindsight": "the least error on the scores of all later tokens",
}
"""What is served, in this order; all but the first with the plan's counts."""


def execute_requests(question: RequestsQuestion, session: Session) -> Answer:
    """Requests served by each membership: losses, errors of scores, caches and tokens beside the full model's."""
    path = question.plan
    plan, report = plan_to_run(path, "chai")
    if not report.valid:
        return not_run(report)
    chosen = map_of(plan, path)
    from gapless.torch.heads.models import load_language_model, sequences_of

    if question.first_tokens >= question.sequence:
        rule = f"must be fewer than the {question.sequence} tokens of a sequence"
        raise InputError(f"first_tokens: {rule}, got {question.first_tokens}")
    model = load_language_model(question.model, session.options.seed, question.device, question.dtype)
    check_model(model, Record(dict(plan.problem), f"{path}: problem"), question.model)
    tokens = model.tokens(question.text)
    prompts = sequences_of(tokens, question.sequence, question.sequences, f"text: {question.text}")
    run = _Requests(model, chosen, question, session)
    for number in range(0, len(prompts), question.batch):
        session.say(f"request {number + 1} of {len(prompts)} ...")
        run.serve_all(prompts[number : number + question.batch])
    asked = {
        name: getattr(question, name)
        for name in ("model", "device", "dtype", "plan", "first_tokens", "sequence", "new_tokens")
    }
    return Answer({**run.data, **asked}, run.text, is_valid=run.is_valid)


@dataclass
class _Account:
    """Of one membership over all requests, sums: nats, tokens that count, errors, bytes, and equal tokens."""

    loss: float = 0.0
    count: int = 0
    error: float = 0.0
    cache_bytes: int = 0
    equal_tokens: int = 0


@dataclass
class _Requests:
    """The accounts of all memberships, and what was checked of them."""

    model: LanguageModel
    chosen: HeadMap
    question: RequestsQuestion
    session: Session
    accounts: dict[str, _Account] = field(default_factory=lambda: {name: _Account() for name in MAPS})
    requests: int = 0
    logit_difference: float = 0.0
    largest_logit: float = 0.0
    unplanned: int = 0
    proven: int = 0

    def serve_all(self, prompts: Tensor) -> None:
        """Serve some requests by each membership, and check it."""
        from gapless.torch.heads.requests import distances_of, replaced, serve

        first, new_tokens, prompt = self.question.first_tokens, self.question.new_tokens, prompts.shape[1]
        later = distances_of(self.model, prompts, first)
        full: Served | None = None
        for name in MAPS:
            maps: list[HeadMap] = []
            watched = 0 if name in ("full", "static") else first
            served = serve(self.model, prompts, self._choose(name, iter(later), maps), watched, new_tokens)
            full = full or served
            self._add(name, served, full, maps, later)
            brute = replaced(self.model, served, prompt, watched)
            self.logit_difference = max(self.logit_difference, float((brute - served.logits).abs().max()))
            self.largest_logit = max(self.largest_logit, float(brute.abs().max()))
            self.unplanned += served.cache_bytes != self._planned_bytes(name, served)
        self.requests += len(prompts)

    def _choose(self, name: str, later: Iterator[Floats], maps: list[HeadMap]) -> Choose:
        """What chooses the map of one request after the other, and lists it in `maps`."""

        def choose(distance: Floats) -> tuple[tuple[tuple[int, ...], ...], NDArray[np.int64]]:
            maps.append(self._map(name, distance, next(later)))
            return maps[-1].kept, maps[-1].representative

        return choose

    def _map(self, name: str, distance: Floats, later: Floats) -> HeadMap:
        layer, counts = self.model.layers[0], self.chosen.counts.tolist()
        least = partial(least_map, counts=counts, key_heads=layer.key_heads, deadline=Deadline(self.session.options))
        if name == "full":
            everything = tuple([tuple(range(layer.key_heads))] * len(counts))
            found = HeadMap(everything, np.tile(np.arange(layer.heads), (len(counts), 1)))
        elif name == "static":
            found = self.chosen
        elif name == "request":
            found = clustered_map(distance, counts, layer.key_heads, Parameters().k_means_rounds)
        elif name == "request-least":
            found = least(distance)[0]
        else:
            found, is_proven = least(later)
            self.proven += is_proven
        return found

    def _add(self, name: str, served: Served, full: Served, maps: list[HeadMap], later: Floats) -> None:
        from gapless.torch.heads.models import cross_entropy

        account, first, prompt = self.accounts[name], self.question.first_tokens, self.question.sequence
        logits, following = served.logits[:, first : prompt - 1], served.tokens[:, first + 1 : prompt]
        account.loss += cross_entropy(logits, following) * following.numel()
        account.count += following.numel()
        errors = [each.error(distance) for each, distance in zip(maps, later, strict=True)]
        account.error += sum(errors)
        account.cache_bytes += served.cache_bytes
        account.equal_tokens += int((served.tokens[:, prompt:] == full.tokens[:, prompt:]).sum())

    def _planned_bytes(self, name: str, served: Served) -> int:
        """What the cache of these requests holds with all tokens but the last."""
        layer, everything = self.model.layers[0], len(self.model.layers) * self.model.layers[0].key_heads
        requests, tokens = served.tokens.shape
        keys = everything if name == "full" else int(self.chosen.counts.sum())
        numbers: int = (keys + everything) * requests * (tokens - 1) * layer.dimension
        return numbers * int(served.logits.element_size())

    @property
    def is_least(self) -> bool:
        """Whether hindsight, where it is proven, has the least error of all with its counts."""
        least = self.accounts["hindsight"].error
        return all(least <= self.accounts[name].error * (1 + 1e-9) for name in ("static", "request", "request-least"))

    @property
    def is_valid(self) -> bool:
        """Whether logits are those of brute force, caches as planned, and the least error the least."""
        is_equal = self.logit_difference <= tolerance_of(self.question.dtype, self.largest_logit)
        return is_equal and not self.unplanned and (self.is_least or self.proven < self.requests)

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        layer_tokens = self.accounts["full"].count
        return {
            "valid": self.is_valid,
            "requests": self.requests,
            "counts": self.chosen.counts.tolist(),
            "maps": {
                name: {
                    "loss": each.loss / each.count,
                    "error": each.error / layer_tokens,
                    "cache_bytes": each.cache_bytes,
                    "equal_tokens": each.equal_tokens,
                }
                for name, each in self.accounts.items()
            },
            "generated_tokens": self.requests * self.question.new_tokens,
            "hindsight_proven": self.proven,
            "unplanned_caches": self.unplanned,
            "logit_difference": self.logit_difference,
            "largest_logit": self.largest_logit,
        }

    @property
    def text(self) -> str:
        """A line a membership, then what was checked."""
        rows, tokens = [["heads", "loss", "error of scores", "cache", "equal tokens"]], self.accounts["full"].count
        for name, each in self.accounts.items():
            loss, error = f"{each.loss / each.count:.4f}", f"{each.error / tokens:.4g}"
            rows.append([name, loss, error, format_bytes(each.cache_bytes), str(each.equal_tokens)])
        most, first = self.requests * self.question.new_tokens, self.question.first_tokens
        planned = "as planned" if not self.unplanned else f"{self.unplanned} not as planned"
        return "\n".join([
            table(rows),
            *(f"{name}: {what}" for name, what in MAPS.items()),
            f"{self.requests} requests, clustered after {first} tokens; of {most} generated tokens",
            f"logits differ by {self.logit_difference:.2g} from those of all heads with replaced attention",
            f"caches {planned}; hindsight proven the least for {self.proven} of {self.requests} requests",
        ])  # fmt: skip
