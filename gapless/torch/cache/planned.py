"""A cache that stores what a plan says, for models of `transformers`. Needs the extra `hf`.

>>> with planned_cache(model, decision.layers, decision.layout) as cache:                              # doctest: +SKIP
...     model.model.generate(tokens, attention_mask=mask, cache=cache)

Each token meets the cache as `simulated` says, whether it comes in a prompt or one by one: bits in groups, dropped
tokens and shared keys are gone from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gapless.errors import InputError
from gapless.profiles.cache.layout import Layout
from gapless.profiles.cache.modes import LayerModes
from gapless.torch.cache.simulated import attend_as, first_tokens, unpadded
from gapless.torch.cache.stores import Store
from gapless.torch.heads.attention import attending
from gapless.torch.heads.models import Cache, DynamicLayer, LanguageModel
from gapless.torch.library import Tensor, torch

__all__ = ["PlannedCache", "PlannedLayer", "planned_cache"]

_LEAST_SHARE = 1e-30


class PlannedLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of the cache. `seen`: tokens so far; `start`: those dropped; `packed`: those dropped or packed."""

    is_croppable = False

    def __init__(self, modes: LayerModes, layout: Layout) -> None:
        super().__init__()
        self.modes, self.layout = modes, layout
        self.seen = self.start = self.packed = 0
        self.first: Tensor | None = None
        self.key_stores = Store.of("keys", modes.keys, layout)
        self.value_stores = Store.of("values", modes.values, layout)
        of_keys, of_values = (
            [head for store in stores for head in store.heads] for stores in (self.key_stores, self.value_stores)
        )
        group = len(modes.representatives) // len(modes.keys)
        # Scores come store by store: where each head's scores are, and then where each head's output is.
        self.rows = [of_keys.index(used // group) * group + used % group for used in modes.representatives]
        self.columns = [of_values.index(head) for head in range(len(modes.values))]
        self.has_order = self.rows == list(range(len(self.rows))), self.columns == list(range(len(self.columns)))

    def update(
        self, key_states: Tensor, value_states: Tensor, *rest: object, **others: object
    ) -> tuple[Tensor, Tensor]:
        """Count the tokens; the attention stores them, which knows where sequences begin."""
        self.is_initialized = True
        self.seen += key_states.shape[2]
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Tokens so far, dropped ones too."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Of a mask over all tokens."""
        return self.seen + query_length, 0

    def reset(self) -> None:
        """Forget all."""
        self.__init__(self.modes, self.layout)  # type: ignore[misc]

    def _change_batch(self, change: Callable[[Tensor], Tensor]) -> None:
        self.first = None if self.first is None else change(self.first)
        for store in (*self.key_stores, *self.value_stores):
            store.change_batch(change)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Sequences in another order, for beams."""
        self._change_batch(lambda states: states.index_select(0, beam_idx.to(states.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each sequence so many times."""
        self._change_batch(lambda states: states.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Some sequences."""
        self._change_batch(lambda states: states[indices])

    def crop(self, tokens_to_remove: int) -> None:
        """Raises `InputError`: what is packed or dropped doesn't come back."""
        raise InputError("cache: a planned cache can't give tokens back, as assisted generation asks")

    @property
    def size_bytes(self) -> int:
        """Of all that is held."""
        return sum(store.size_bytes for store in (*self.key_stores, *self.value_stores))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
    ) -> tuple[Tensor, None]:
        """Outputs of new tokens, (batch, tokens, heads, dimension), whose keys and values are stored then."""
        count = query.shape[2]
        before = self.seen - count
        if self.first is None:
            self.first = first_tokens(mask, len(query), count, query.device)
        if not before:
            made = attend_as(self.modes, self.layout, query, key, value, mask, scaling)
            self._store(unpadded(key, self.first), unpadded(value, self.first), count)
            return made
        outputs = []
        for token in range(count):
            one = slice(token, token + 1)
            self._store(key[:, :, one], value[:, :, one], before + token + 1)
            shown = None if mask is None else mask[:, :, one, : before + token + 1]
            outputs.append(self._attend_one(query[:, :, one], shown, scaling))
        return (outputs[0] if count == 1 else torch.cat(outputs, dim=1)), None

    def _store(self, key: Tensor, value: Tensor, tokens: int) -> None:
        """Add new tokens, so many in all then; pack and drop what is due."""
        for states, stores in ((key, self.key_stores), (value, self.value_stores)):
            for store in stores:
                store.append(states)
        due = self.layout.quantised(tokens) - self.packed
        start = self.layout.start(tokens, self.modes.window)
        for store in (*self.key_stores, *self.value_stores):
            store.pack(due)
        self.packed += due
        if start > self.start:
            assert self.first is not None, "attention has begun"
            sinks = torch.arange(self.layout.sinks, device=key.device)
            places = self.first[:, None] + sinks - self.start
            for store in (*self.key_stores, *self.value_stores):
                store.drop(start - self.start, places)
            self.start = start

    def _attend_one(self, query: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
        """The output of one token of each sequence, (batch, 1, heads, dimension)."""
        batch, heads, _, dimension = query.shape
        grouped = query.view(batch, len(self.modes.keys), -1, dimension)
        found = [store.scores(_of_heads(grouped, store.heads)) for store in self.key_stores]
        scores = (found[0] if len(found) == 1 else torch.cat(found, dim=1)).flatten(1, 2)
        if not self.has_order[0]:
            scores = scores[:, self.rows]
        scores = scores * scaling
        hidden = self._hidden(mask)
        if hidden is not None:
            scores = scores + hidden
        # What is smaller adds nothing, and its products are subnormal numbers, which take 40 times as long.
        shares = torch.nn.functional.threshold_(torch.softmax(scores, dim=-1), _LEAST_SHARE, 0.0)
        shares = shares.view(batch, len(self.modes.values), -1, scores.shape[-1])
        made = [store.mixed(_of_heads(shares, store.heads)) for store in self.value_stores]
        output = made[0] if len(made) == 1 else torch.cat(made, dim=1)
        if not self.has_order[1]:
            output = output[:, self.columns]
        return output.reshape(batch, 1, heads, dimension).to(query.dtype)

    def _hidden(self, mask: Tensor | None) -> Tensor | None:
        """What is added to the scores of the tokens that are held, (batch, 1, tokens)."""
        shown = None if mask is None else mask[:, 0, :, self.start :].float()
        if not self.start or not self.layout.sinks:
            return shown
        assert self.first is not None, "attention has begun"
        sinks = self.first[:, None] + torch.arange(self.layout.sinks, device=self.first.device)
        least = torch.finfo(torch.float32).min
        beside = torch.where(sinks < self.start, 0.0, least)[:, None]
        if shown is None:
            shown = beside.new_zeros(len(beside), 1, self.seen - self.start)
        return torch.cat([beside, shown.expand(len(beside), -1, -1)], dim=2)


def _of_heads(states: Tensor, heads: list[int]) -> Tensor:
    return states if len(heads) == states.shape[1] and heads == list(range(len(heads))) else states[:, heads]


class PlannedCache(Cache):  # type: ignore[misc]
    """An empty cache of layers in these modes."""

    def __init__(self, modes: Sequence[LayerModes], layout: Layout) -> None:
        super().__init__(layers=[PlannedLayer(each, layout) for each in modes])

    @property
    def size_bytes(self) -> int:
        """Of all that is held."""
        return sum(layer.size_bytes for layer in self.layers)


@contextmanager
def planned_cache(found: LanguageModel, modes: Sequence[LayerModes], layout: Layout) -> Iterator[PlannedCache]:
    """An empty cache, for calls of the model within the block that are given it, `generate` too.

    Raises `InputError` where the modes aren't of the model's layers and heads.
    """
    here = [(layer.heads, layer.key_heads, layer.dimension) for layer in found.layers]
    there = [(len(each.representatives), len(each.keys), layout.dimension) for each in modes]
    if here != there:
        rule = f"must be of the model's {len(here)} layers, their heads, key heads and dimension {here[0]}"
        raise InputError(f"plan: {rule}, got {len(there)} of {there[0]}")
    cache = PlannedCache(modes, layout)
    with attending(found, [layer.attend for layer in cache.layers]):
        yield cache
