"""`gapless run chai-requests`: heads clustered anew for each request, with a plan's counts. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.clusters import clustered_map, least_map
from gapless.encodings.chai.commands.accounts import HEADS, Account, words_right
from gapless.encodings.chai.commands.opening import Opened, opened, tolerance_of
from gapless.encodings.chai.commands.pictures import changes, draw_changes
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.queries import using
from gapless.encodings.chai.question import COPY, DROPPING, RequestsQuestion
from gapless.errors import InputError
from gapless.options import Deadline
from gapless.plot.style import check_plot, save
from gapless.report.text import table
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.heads.dropping import HeadPredictor
    from gapless.torch.heads.requests import Answered, Choose, Served
    from gapless.torch.library import Tensor

__all__ = ["MAPS", "execute_requests"]

Floats = NDArray[np.float64]

MAPS = {
    "full": "all heads",
    "static": "the plan's map for all requests",
    "request": "k-means on the scores of the first tokens",
    "request-least": "the least error on the scores of the first tokens",
    "hindsight": "the least error on the scores of all later tokens",
    "values": "as request, and the values of the heads that are used",
    "spatten": "as many heads in all; the others' outputs are dropped, by their sizes up to the layer",
    "dejavu": "as many heads in each layer; the others' outputs are dropped, as a predictor says for each token",
}
"""What is served, in this order; all but the first with the plan's counts, the last three where they are asked for."""
_ALWAYS = 5


def execute_requests(question: RequestsQuestion, session: Session) -> Answer:
    """Requests served by each membership: losses, accuracies, errors of scores, caches and tokens beside the full
    model's.
    """
    if question.first_tokens >= question.sequence:
        rule = f"must be fewer than the {question.sequence} tokens of a sequence"
        raise InputError(f"first_tokens: {rule}, got {question.first_tokens}")
    if question.task == COPY and (question.sequence % 2 or question.first_tokens > question.sequence // 2):
        rule = "must be even for a copy, and twice the first tokens at least"
        raise InputError(f"sequence: {rule}, got {question.sequence}")
    if ("dejavu" in (question.beside or ())) != (question.calibration is not None):
        raise InputError("calibration: goes with --beside dejavu, whose predictor is fitted on it")
    return opened(question, session, question.dtype, lambda found: _served(found, question, session))


def _served(found: Opened, question: RequestsQuestion, session: Session) -> Answer:
    if question.plot is not None:
        check_plot(question.plot)
    prompts = found.sequences(question.text, question.sequence, question.sequences)
    if question.task == COPY:
        prompts = prompts[:, : question.sequence // 2].repeat(1, 2)
    run = _Requests(found, question, session)
    for number in range(0, len(prompts), question.batch):
        session.say(f"request {number + 1} of {len(prompts)} ...")
        run.serve_all(prompts[number : number + question.batch])
    named = ("model", "device", "dtype", "plan", "task", "first_tokens", "sequence", "new_tokens")
    asked = {name: getattr(question, name) for name in named}
    if question.plot is not None:
        asked["changes"] = _changes(found, prompts, question.batch).tolist()
        save(draw_changes(asked), question.plot)
    return Answer({**run.data, **asked}, run.text, is_valid=run.is_valid)


def _changes(found: Opened, prompts: Tensor, batch: int) -> Floats:
    """By token after the first, and layer; see `changes`."""
    from gapless.torch.heads.requests import distances_by_token

    counts, key_heads = found.chosen.counts.tolist(), found.model.layers[0].key_heads
    parts = [prompts[first : first + batch] for first in range(0, len(prompts), batch)]
    sums = sum(len(part) * changes(distances_by_token(found.model, part), counts, key_heads) for part in parts)
    return np.asarray(sums / len(prompts))


@dataclass
class _Requests:
    """The accounts of all memberships, and what was checked of them."""

    opened: Opened
    question: RequestsQuestion
    session: Session
    accounts: dict[str, Account] = field(default_factory=dict)
    requests: int = 0
    logit_difference: float = 0.0
    largest_logit: float = 0.0
    unplanned: int = 0
    proven: int = 0

    def serve_all(self, prompts: Tensor) -> None:
        """Serve some requests by each membership, and check it; then with heads dropped."""
        from gapless.torch.heads.requests import distances_of, replaced, serve

        model, question, beside = self.opened.model, self.question, self.question.beside or ()
        later = distances_of(model, prompts, question.first_tokens)
        full: Answered | None = None
        for name in [*list(MAPS)[:_ALWAYS], *(name for name in beside if name not in DROPPING)]:
            maps: list[HeadMap] = []
            watched = 0 if name in ("full", "static") else question.first_tokens
            with_values = name == "values"
            choose = self._choose(name, iter(later), maps)
            served = serve(model, prompts, choose, watched, question.new_tokens, with_values=with_values)
            full = full or served
            error = sum(each.error(distance) for each, distance in zip(maps, later, strict=True))
            self._add(name, served, full, error)
            brute = replaced(model, served, prompts.shape[1], watched, with_values=with_values)
            self.logit_difference = max(self.logit_difference, float((brute - served.logits).abs().max()))
            self.largest_logit = max(self.largest_logit, float(brute.abs().max()))
            self.unplanned += served.cache_bytes != self._planned_bytes(name, served)
        assert full is not None, "it is always served"
        for name in beside:
            if name in DROPPING:
                self._add(name, self._dropped(name, prompts), full, float("nan"))
        self.requests += len(prompts)

    def _choose(self, name: str, later: Iterator[Floats], maps: list[HeadMap]) -> Choose:
        """What chooses the map of one request after the other, and lists it in `maps`."""

        def choose(distance: Floats) -> tuple[tuple[tuple[int, ...], ...], NDArray[np.int64]]:
            maps.append(self._map(name, distance, next(later)))
            return maps[-1].kept, maps[-1].representative

        return choose

    def _map(self, name: str, distance: Floats, later: Floats) -> HeadMap:
        layer, counts = self.opened.model.layers[0], self.opened.chosen.counts.tolist()
        least = partial(least_map, counts=counts, key_heads=layer.key_heads, deadline=Deadline(self.session.options))
        if name == "full":
            everything = tuple([tuple(range(layer.key_heads))] * len(counts))
            found = HeadMap(everything, np.tile(np.arange(layer.heads), (len(counts), 1)))
        elif name == "static":
            found = self.opened.chosen
        elif name in ("request", "values"):
            found = clustered_map(distance, counts, layer.key_heads, Parameters().k_means_rounds)
        elif name == "request-least":
            found = least(distance)[0]
        else:
            found, is_proven = least(later)
            self.proven += is_proven and not self.opened.has_fewer_queries
        if name not in ("full", "static"):
            found = using(found, later if name == "hindsight" else distance, layer.key_heads, self.opened.used)
        return found

    @cached_property
    def _predictor(self) -> HeadPredictor:
        from gapless.torch.heads.dropping import HeadPredictor

        assert self.question.calibration is not None, "it was checked"
        self.session.say("fitting the predictor of heads ...")
        path, most = self.question.calibration, self.question.calibration_sequences
        sequences = self.opened.sequences(path, self.question.sequence, most, "calibration")
        return HeadPredictor.of(self.opened.model, sequences)

    def _dropped(self, name: str, prompts: Tensor) -> Answered:
        """With as many heads as the plan uses: in each layer, or most of them in the first ones."""
        from gapless.torch.heads.dropping import serve_predicted, serve_pruned

        model, used, first = self.opened.model, self.opened.used, self.question.first_tokens
        if name == "spatten":
            return serve_pruned(model, prompts, sorted(used, reverse=True), first, self.question.new_tokens)
        return serve_predicted(model, prompts, self._predictor, used, first, self.question.new_tokens)

    def _add(self, name: str, served: Answered, full: Answered, error: float) -> None:
        from gapless.torch.heads.models import cross_entropy

        account, question = self.accounts.setdefault(name, Account()), self.question
        prompt = question.sequence
        first = prompt // 2 if question.task == COPY else question.first_tokens
        logits, following = served.logits[:, first : prompt - 1], served.tokens[:, first + 1 : prompt]
        right = logits.argmax(dim=-1) == following
        account.loss += cross_entropy(logits, following) * following.numel()
        account.count += following.numel()
        account.right += int(right.sum())
        if self.opened.model.tokenizer is None:
            words, right_words = words_right(following.cpu().numpy(), right.cpu().numpy())
            account.words, account.right_words = account.words + words, account.right_words + right_words
        account.error += error / (prompt - question.first_tokens - 1) * following.shape[1]
        account.cache_bytes += served.cache_bytes
        account.equal_tokens += int((served.tokens[:, prompt:] == full.tokens[:, prompt:]).sum())

    def _planned_bytes(self, name: str, served: Served) -> int:
        """What the cache of these requests holds with all tokens but the last."""
        layers = self.opened.model.layers
        requests, tokens = served.tokens.shape
        everything, kept = len(layers) * layers[0].key_heads, int(self.opened.chosen.counts.sum())
        heads = {"full": 2 * everything, "values": 2 * kept}.get(name, kept + everything)
        numbers: int = heads * requests * (tokens - 1) * layers[0].dimension
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
        return {
            "valid": self.is_valid,
            "requests": self.requests,
            "counts": self.opened.chosen.counts.tolist(),
            "maps": {name: each.data for name, each in self.accounts.items()},
            "generated_tokens": self.requests * self.question.new_tokens,
            "hindsight_proven": self.proven,
            "unplanned_caches": self.unplanned,
            "logit_difference": self.logit_difference,
            "largest_logit": self.largest_logit,
        }

    @property
    def text(self) -> str:
        """A line a membership, then what was checked."""
        most, first = self.requests * self.question.new_tokens, self.question.first_tokens
        planned = "as planned" if not self.unplanned else f"{self.unplanned} not as planned"
        return "\n".join([
            table([HEADS, *(each.line(name) for name, each in self.accounts.items())]),
            *(f"{name}: {MAPS[name]}" for name in self.accounts),
            f"{self.requests} requests, clustered after {first} tokens; of {most} generated tokens",
            f"logits differ by {self.logit_difference:.2g} from those of all heads with replaced attention",
            f"caches {planned}; hindsight proven the least for {self.proven} of {self.requests} requests",
        ])  # fmt: skip
