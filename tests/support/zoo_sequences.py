"""Language, speech and recurrent models of the zoo, small and with random weights."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional
from torch_models import Bert, Gpt
from zoo_cases import Case, own_loss

__all__ = ["SEQUENCES"]

WORDS, ROWS, LENGTH = 64, 8, 24


def words(rows: int = ROWS, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(WORDS, (rows, length))


def next_word(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), target.flatten())


class Language(nn.Module):
    """Words in, a body, and the loss of the next words."""

    def __init__(self, body: nn.Module, width: int = 32) -> None:
        super().__init__()
        self.words, self.body, self.head = nn.Embedding(WORDS, width), body, nn.Linear(width, WORDS)

    def forward(self, word: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found = self.body(self.words(word))
        return next_word(self.head(found[0] if isinstance(found, tuple) else found), target)


def language(body: nn.Module) -> Case:
    return Case(Language(body), (words(), words()), own_loss)


class Cells(nn.Module):
    """An LSTM written out, a cell a step."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.cell, self.drop = nn.LSTMCell(width, width), nn.Dropout(0.2)

    def forward(self, found: torch.Tensor) -> torch.Tensor:
        state = (found.new_zeros(found.shape[0], found.shape[2]), found.new_zeros(found.shape[0], found.shape[2]))
        made = []
        for now in found.unbind(1):
            state = self.cell(now, state)
            made.append(self.drop(state[0]))
        return torch.stack(made, 1)


class Scan(nn.Module):
    """A selective scan as in Mamba: a gated, input-dependent linear recurrence, a step at a time."""

    def __init__(self, width: int = 32, states: int = 8) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.mix = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.rates, self.parts = nn.Parameter(torch.rand(width, states)), nn.Linear(width, 1 + 2 * states)
        self.norm, self.states = nn.LayerNorm(width), states

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found, gate = self.inner(self.norm(given)).chunk(2, -1)
        found = functional.silu(self.mix(found.transpose(1, 2))[..., : found.shape[1]]).transpose(1, 2)
        step, ins, outs = self.parts(found).split([1, self.states, self.states], -1)
        step = functional.softplus(step)
        keep = torch.exp(-step.unsqueeze(-1) * self.rates.exp())
        add = (step * found).unsqueeze(-1) * ins.unsqueeze(2)
        state, made = torch.zeros_like(add[:, 0]), []
        for number in range(found.shape[1]):
            state = keep[:, number] * state + add[:, number]
            made.append((state * outs[:, number].unsqueeze(1)).sum(-1))
        return given + self.outer(torch.stack(made, 1) * functional.silu(gate))


class Fourier(nn.Module):
    """A long convolution by Fourier transforms, as state-space models have it in training."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.kernel, self.mlp = nn.Parameter(0.1 * torch.randn(width, LENGTH)), nn.Linear(width, width)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        size = 2 * given.shape[1]
        found = torch.fft.rfft(given.transpose(1, 2), n=size) * torch.fft.rfft(self.kernel, n=size)
        found = torch.fft.irfft(found, n=size)[..., : given.shape[1]].transpose(1, 2)
        return given + self.mlp(functional.gelu(found))


class Relative(nn.Module):
    """A layer of Transformer-XL: attention to what was kept of the segment before, by relative places."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.pair = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.place, self.outer = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.content, self.position = (
            nn.Parameter(torch.zeros(heads, self.size)),
            nn.Parameter(torch.zeros(heads, self.size)),
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, found: torch.Tensor, before: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        rows, length, width = found.shape
        given = torch.cat([before, found], 1)
        total = given.shape[1]
        query = self.query(found).view(rows, length, self.heads, self.size)
        key, value = self.pair(given).view(rows, total, 2, self.heads, self.size).unbind(2)
        place = self.place(places).view(total, self.heads, self.size)
        content = torch.einsum("bihd,bjhd->bhij", query + self.content, key)
        position = torch.einsum("bihd,jhd->bhij", query + self.position, place)
        padded = functional.pad(position, (1, 0)).view(rows, self.heads, total + 1, length)
        shifted = padded[:, :, 1:].reshape(position.shape)
        hidden = torch.ones(length, total, dtype=torch.bool).triu(1 + total - length)
        weights = ((content + shifted) / math.sqrt(self.size)).masked_fill(hidden, float("-inf")).softmax(-1)
        return self.norm(
            found + self.outer(torch.einsum("bhij,bjhd->bihd", weights, value).reshape(rows, length, width))
        )


class TransformerXl(nn.Module):
    """It takes what the last call kept, and returns what the next one takes."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.layers = nn.ModuleList([Relative(width) for _ in range(layers)])
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, width, 2) / width))

    def forward(self, word: torch.Tensor, kept: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        angles = torch.arange(2 * word.shape[1] - 1, -1, -1)[:, None] * self.rates
        found, places = self.words(word), torch.cat([angles.sin(), angles.cos()], -1)
        now = []
        for layer, before in zip(self.layers, kept, strict=True):
            now.append(found.detach())
            found = layer(found, before, places)
        return self.head(found), now


def transformer_xl() -> Case:
    target = words()
    kept = [torch.randn(ROWS, LENGTH, 32) for _ in range(2)]
    return Case(TransformerXl(), (words(), kept), lambda made: next_word(made[0], target))


class Translator(nn.Module):
    """A recurrent encoder, and a decoder that attends to it at each word."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(2 * width, WORDS)
        self.encoder, self.cell = nn.GRU(width, width, batch_first=True), nn.GRUCell(width, width)

    def forward(self, word: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        given, state = self.encoder(self.words(word))
        state, scores = state[0], []
        for now in self.words(target).unbind(1):
            state = self.cell(now, state)
            weights = (given @ state.unsqueeze(-1)).softmax(1)
            scores.append(self.head(torch.cat([state, (weights * given).sum(1)], -1)))
        return next_word(torch.stack(scores[:-1], 1), target[:, 1:])


class Transducer(nn.Module):
    """RNN-T: sound and words meet in a joint network; its loss sums over all alignments, inside."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.sound, self.words = nn.GRU(16, width, batch_first=True), nn.Embedding(WORDS, width)
        self.said, self.head = nn.GRU(width, width, batch_first=True), nn.Linear(width, WORDS)

    def forward(self, sound: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
        heard, (said, _) = self.sound(sound)[0], self.said(functional.pad(self.words(word), (0, 0, 1, 0)))
        scores = self.head(torch.tanh(heard[:, :, None] + said[:, None])).log_softmax(-1)
        blank, label = (
            scores[..., 0],
            scores[:, :, :-1].gather(-1, word[:, None, :, None].expand(-1, scores.shape[1], -1, 1)),
        )
        label = label[..., 0]
        reached = functional.pad(label[:, 0].cumsum(-1), (1, 0))
        for now in range(1, scores.shape[1]):
            waited, row = reached + blank[:, now - 1], []
            for place in range(waited.shape[1]):
                here = waited[:, place]
                row.append(here if not place else torch.logaddexp(here, row[-1] + label[:, now, place - 1]))
            reached = torch.stack(row, -1)
        return -(reached[:, -1] + blank[:, -1, -1]).mean()


class Speech(nn.Module):
    """Convolutions with batch norm over a transposed input, a recurrent layer, scores of letters."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(16, width), nn.BatchNorm1d(width)
        self.mix = nn.Sequential(nn.Conv1d(width, width, 5, 2, 2), nn.BatchNorm1d(width), nn.Hardtanh(0, 20, True))
        self.layer, self.head = nn.GRU(width, width, batch_first=True, bidirectional=True), nn.Linear(2 * width, WORDS)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        found = self.norm(self.inner(sound).transpose(1, 2)).transpose(1, 2)
        found = self.mix(found.transpose(1, 2)).transpose(1, 2)
        return self.head(self.layer(found)[0]).log_softmax(-1)


class SpeechLoss(nn.Module):
    """The same with its CTC loss inside."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Speech()

    def forward(self, sound: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
        return connected(self.model(sound), word)


def connected(scores: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
    lengths = torch.full((len(word),), scores.shape[1]), torch.full((len(word),), word.shape[1])
    return functional.ctc_loss(scores.transpose(0, 1), word, *lengths)


def speech(is_inside: bool) -> Case:
    sound, word = torch.randn(ROWS, 40, 16), torch.randint(1, WORDS, (ROWS, 6))
    if is_inside:
        return Case(SpeechLoss(), (sound, word), own_loss)
    return Case(Speech(), (sound,), lambda made: connected(made, word))


class Wave(nn.Module):
    """WaveNet: dilated causal convolutions with gates."""

    def __init__(self, width: int = 32, layers: int = 4) -> None:
        super().__init__()
        self.gates = nn.ModuleList([nn.Conv1d(width, 2 * width, 2, dilation=2**k) for k in range(layers)])
        self.outer = nn.ModuleList([nn.Conv1d(width, 2 * width, 1) for _ in range(layers)])

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found, total = given.transpose(1, 2), 0
        for number, (gate, outer) in enumerate(zip(self.gates, self.outer, strict=True)):
            one, other = gate(functional.pad(found, (2**number, 0))).chunk(2, 1)
            now, skip = outer(one.tanh() * other.sigmoid()).chunk(2, 1)
            found, total = found + now, total + skip
        return torch.relu(total).transpose(1, 2)


class Experts(nn.Module):
    """A layer of routed experts. With a capacity each takes so many words; without, as many as choose it."""

    def __init__(self, width: int = 32, experts: int = 4, capacity: int | None = None) -> None:
        super().__init__()
        self.router, self.norm, self.capacity = nn.Linear(width, experts), nn.LayerNorm(width), capacity
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(experts)]
        )

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found = self.norm(given).flatten(0, 1)
        share, chosen = self.router(found).softmax(-1).max(-1)
        made = torch.zeros_like(found)
        if self.capacity is None:
            for number, expert in enumerate(self.experts):
                (rows,) = torch.where(chosen == number)
                made = made.index_add(0, rows, expert(found[rows]) * share[rows, None])
            return given + made.view(given.shape)
        hot = functional.one_hot(chosen, len(self.experts))
        place = (hot.cumsum(0) - 1) * hot
        fits = hot * (place < self.capacity)
        slots = functional.one_hot(place.clamp(max=self.capacity - 1), self.capacity) * fits[..., None]
        sent = torch.einsum("nec,nw->ecw", slots.to(found.dtype), found)
        back = torch.stack([expert(rows) for expert, rows in zip(self.experts, sent, strict=True)])
        made = torch.einsum("nec,ecw->nw", slots.to(found.dtype), back) * share[:, None]
        return given + made.view(given.shape)


SEQUENCES = {
    "GPT": lambda: Case(Gpt(length=LENGTH), (words(), words()), own_loss),
    "BERT-like": lambda: Case(Bert(length=LENGTH), (words(), words()), own_loss),
    "Transformer-XL-like": transformer_xl,
    "LSTM": lambda: language(nn.LSTM(32, 32, 2, batch_first=True)),
    "LSTM, cells": lambda: language(Cells()),
    "GRU": lambda: language(nn.GRU(32, 32, 2, batch_first=True, dropout=0.1)),
    "Sequence to sequence": lambda: Case(Translator(), (words(), words(length=12)), own_loss),
    "Mamba-like scan": lambda: language(nn.Sequential(Scan(), Scan())),
    "Long convolution (Fourier)": lambda: language(nn.Sequential(Fourier(), Fourier())),
    "WaveNet": lambda: language(Wave()),
    "RNN-T": lambda: Case(Transducer(), (torch.randn(4, 12, 16), words(4, 5)), own_loss),
    "Speech, CTC outside": lambda: speech(is_inside=False),
    "Speech, CTC inside": lambda: speech(is_inside=True),
    "Experts, static capacity": lambda: language(nn.Sequential(Experts(capacity=64), Experts(capacity=64))),
    "Experts, routed by data": lambda: language(nn.Sequential(Experts(), Experts())),
}
"""How each is made."""
