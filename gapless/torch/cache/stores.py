"""The keys, or the values, of some heads of a layer: packed groups of tokens, newer ones in full, sinks.

Needs the extra `hf`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gapless.profiles.cache.layout import FULL, Layout
from gapless.profiles.cache.modes import SHARED
from gapless.torch.cache.packing import add_scores, add_values, packed, planes_of, unpacked
from gapless.torch.cache.rounding import coded, decoded
from gapless.torch.library import Tensor, torch

__all__ = ["Store"]


@dataclass
class Store:
    """`part`: keys or values, of these `heads`; `formats`: the name, the first place and the number of those in each,
    one after the other. Tokens are in order: `sinks`, those of `planes`, then those of `full`; as numbers (batch,
    heads, tokens, dimension).

    `planes`: of each format, bytes of each plane of the codes, (batch, heads of it, groups, bytes, tokens) for keys,
    (batch, heads of it, tokens, bytes) for values; all heads' scales and least values as `coded` has them.
    """

    part: str
    heads: list[int]
    formats: list[tuple[str, int, int]]
    layout: Layout
    full: Tensor | None = None
    sinks: Tensor | None = None
    planes: list[list[Tensor]] = field(default_factory=list)
    scale: Tensor | None = None
    low: Tensor | None = None

    @property
    def size_bytes(self) -> int:
        """Of all that is held, whatever a view shows of it."""
        planes = [plane for each in self.planes for plane in each]
        found = [each for each in (self.full, self.sinks, *planes, self.scale, self.low) if each is not None]
        return sum(each.untyped_storage().nbytes() for each in found)

    def append(self, states: Tensor) -> None:
        """Add tokens of all heads of the layer, in full."""
        new = states if self.heads == list(range(states.shape[1])) else states[:, self.heads]
        self.full = new.contiguous() if self.full is None else torch.cat([self.full, new], dim=2)

    @property
    def is_full(self) -> bool:
        """Whether nothing is packed."""
        return self.formats[0][0] == FULL

    def pack(self, tokens: int) -> None:
        """Put the first of the tokens in full, whole groups, into their heads' formats."""
        if self.is_full or not tokens:
            return
        assert self.full is not None, "there are tokens"
        planes, scales, lows = [], [], []
        for name, first, count in self.formats:
            codes, scale, low = coded(self.full[:, first : first + count, :tokens], self.part, name, self.layout)
            made = [packed(codes, *plane) for plane in planes_of(name)]
            if self.part == "keys":
                made = [each.unflatten(2, (-1, self.layout.group)).transpose(3, 4).contiguous() for each in made]
            planes.append(made)
            scales.append(scale)
            lows.append(low)
        self.full = self.full[:, :, tokens:].clone()
        scale, low = torch.cat(scales, dim=1), torch.cat(lows, dim=1)
        if self.scale is None or self.low is None:
            self.planes, self.scale, self.low = planes, scale, low
            return
        self.planes = [
            [torch.cat(pair, dim=2) for pair in zip(before, after, strict=True)]
            for before, after in zip(self.planes, planes, strict=True)
        ]
        self.scale, self.low = torch.cat([self.scale, scale], dim=2), torch.cat([self.low, low], dim=2)

    def drop(self, tokens: int, places: Tensor) -> None:
        """Drop the first tokens but for sinks. `places`: int64, (batch, sinks), which of the dropped each sink is, less
        than 0 or more for none of them.
        """
        gone = self._taken(tokens)
        batch, heads, _, dimension = gone.shape
        if self.sinks is None:
            self.sinks = gone.new_zeros(batch, heads, places.shape[1], dimension)
        is_here = ((places >= 0) & (places < tokens))[:, None, :, None]
        rows = places.clamp(0, tokens - 1)[:, None, :, None].expand(-1, heads, -1, dimension)
        self.sinks = torch.where(is_here, gone.gather(2, rows), self.sinks)

    def _taken(self, tokens: int) -> Tensor:
        """The first tokens as numbers, which are held no more."""
        assert self.full is not None, "there are tokens"
        if self.is_full:
            gone, self.full = self.full[:, :, :tokens], self.full[:, :, tokens:].clone()
            return gone
        assert self.scale is not None, "what leaves a window was packed before"
        assert self.low is not None, "it goes with scales"
        count = tokens // self.layout.group if self.part == "keys" else tokens
        gone = self._numbers(count)
        self.planes = [[plane[:, :, count:].clone() for plane in each] for each in self.planes]
        self.scale, self.low = self.scale[:, :, count:].clone(), self.low[:, :, count:].clone()
        return gone

    def _numbers(self, count: int) -> Tensor:
        """The first groups of keys, or tokens of values, as numbers."""
        assert self.full is not None, "there are tokens"
        assert self.scale is not None, "there are packed tokens"
        assert self.low is not None, "there are packed tokens"
        found = []
        for (name, _, _), planes in zip(self.formats, self.planes, strict=True):
            parts = []
            for plane, each in zip(planes, planes_of(name), strict=True):
                first = plane[:, :, :count]
                parts.append(unpacked(first.transpose(3, 4).flatten(2, 3) if self.part == "keys" else first, *each))
            found.append(parts[0] if len(parts) == 1 else parts[0] + parts[1])
        scale, low = self.scale[:, :, :count], self.low[:, :, :count]
        return decoded(torch.cat(found, dim=1), scale, low, self.part, self.layout, self.full.dtype)

    def scores(self, query: Tensor) -> Tensor:
        """Products of queries, (batch, heads, queries, dimension), with all keys: (batch, heads, queries, tokens)."""
        parts = []
        if self.sinks is not None:
            parts.append(torch.matmul(query, self.sinks.transpose(2, 3)).float())
        if self.scale is not None and self.low is not None and self.scale.shape[2]:
            precise = query.float()
            scaled = precise[:, :, :, None] * self.scale.transpose(2, 3).float()
            least = torch.matmul(precise, self.low[:, :, :, 0].float().transpose(2, 3))
            made = least[..., None].expand(-1, -1, -1, -1, self.layout.group).contiguous()
            for (name, first, _), planes in zip(self.formats, self.planes, strict=True):
                for plane, each in zip(planes, planes_of(name), strict=True):
                    add_scores(plane, scaled, made, first, *each)
            parts.append(made.flatten(3))
        if self.full is not None and self.full.shape[2]:
            parts.append(torch.matmul(query, self.full.transpose(2, 3)).float())
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=3)

    def mixed(self, shares: Tensor) -> Tensor:
        """Values by the shares of their tokens, (batch, heads, queries, tokens): (batch, heads, queries, dimension)."""
        assert self.full is not None, "there are tokens"
        sinks = 0 if self.sinks is None else self.sinks.shape[2]
        old = 0 if self.scale is None else self.scale.shape[2]
        of_sinks, of_old, of_new = shares.split([sinks, old, self.full.shape[2]], dim=3)
        made = torch.matmul(of_new.to(self.full.dtype), self.full).float()
        if self.sinks is not None:
            made += torch.matmul(of_sinks.to(self.full.dtype), self.sinks).float()
        if old and self.scale is not None and self.low is not None:
            least = torch.matmul(of_old, self.low[..., 0].float())
            made = (made.unflatten(3, (least.shape[3], -1)) + least[..., None]).flatten(3).contiguous()
            scaled = of_old[..., None] * self.scale[:, :, None, :, :, 0].float()
            for (name, first, _), planes in zip(self.formats, self.planes, strict=True):
                for plane, each in zip(planes, planes_of(name), strict=True):
                    add_values(plane, scaled, made, first, *each)
        return made

    def change_batch(self, change: Callable[[Tensor], Tensor]) -> None:
        """Reorder, repeat or choose sequences."""
        for name in ("full", "sinks", "scale", "low"):
            states = getattr(self, name)
            if states is not None:
                setattr(self, name, change(states))
        self.planes = [[change(plane) for plane in each] for each in self.planes]

    @classmethod
    def of(cls, part: str, names: Sequence[str], layout: Layout) -> list[Store]:
        """The empty stores of a layer: one of heads in full, one of all others; heads that share keys have none."""
        full = [head for head, name in enumerate(names) if name == FULL]
        formats, heads = list[tuple[str, int, int]](), list[int]()
        for name in dict.fromkeys(name for name in names if name not in (FULL, SHARED)):
            here = [head for head, other in enumerate(names) if other == name]
            formats.append((name, len(heads), len(here)))
            heads += here
        found = [cls(part, full, [(FULL, 0, len(full))], layout)] if full else []
        return [*found, cls(part, heads, formats, layout)] if heads else found
