"""Small models after those that sparse gradients were published with: VGG, a speech-like LSTM, a masked language model.

Under any seed, data follow one distribution, so that there is something to learn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gapless.errors import InputError
from gapless.torch.library import Module, Tensor, torch

__all__ = ["bert", "lstm", "vgg"]

nn, functional = torch.nn, torch.nn.functional

Made: TypeAlias = tuple[Module, Tensor, Callable[[Tensor, Tensor], Tensor], Tensor]
"""Model, inputs, loss, targets."""

_NO_TARGET = -100
"""What the loss leaves out."""


def vgg(width: int = 16, classes: int = 10, size: int = 16, batch: int = 16) -> Made:
    """Pairs of 3 x 3 convolutions, each pair twice as wide and on half of the size, then linear layers; noisy images of
    `classes` random ones.

    Raises `InputError` unless the size is a multiple of 8.
    """
    if size % 8:
        raise InputError(f"model: size must be a multiple of 8, which is halved three times, got {size}")
    stages, channels = list[Module](), 3
    for wider in (width, 2 * width, 4 * width):
        for _ in range(2):
            stages += [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU()]
            channels = wider
        stages.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(channels * (size // 8) ** 2, 4 * width), nn.ReLU(), nn.Linear(4 * width, classes)]
    chosen = torch.randint(classes, (batch,))
    clean = torch.randn(classes, 3, size, size, generator=_fixed())
    images = clean[chosen] + 2 * torch.randn(batch, 3, size, size)
    return nn.Sequential(*stages, *head), images, functional.cross_entropy, chosen


class _Frames(Module):  # type: ignore[misc,unused-ignore]
    """Two LSTM layers over frames, and the scores of each frame's sound."""

    def __init__(self, features: int, hidden: int, sounds: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(features, hidden, num_layers=2, batch_first=True)
        self.scores = nn.Linear(hidden, sounds)

    def forward(self, frames: Tensor) -> Tensor:
        return self.scores(self.layers(frames)[0])


def lstm(hidden: int = 96, features: int = 20, sounds: int = 24, frames: int = 32, batch: int = 8) -> Made:
    """Two LSTM layers that say each frame's sound; a sound lasts four frames, has noisy features, and a few that may
    follow it.
    """
    spoken = _text(batch, -(-frames // 4), sounds).repeat_interleave(4, dim=1)[:, :frames]
    features_of = torch.randn(sounds, features, generator=_fixed())
    heard = features_of[spoken] + 2 * torch.randn(batch, frames, features)
    return _Frames(features, hidden, sounds), heard, _each_loss, spoken


class _Masked(Module):  # type: ignore[misc,unused-ignore]
    """Words and their places, attention both ways, and the scores of all words."""

    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int, sequence: int) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(vocabulary + 1, hidden), nn.Embedding(sequence, hidden)
        layer = nn.TransformerEncoderLayer(
            hidden, heads, 4 * hidden, 0.0, functional.gelu, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.scores = nn.Linear(hidden, vocabulary)

    def forward(self, words: Tensor) -> Tensor:
        return self.scores(self.layers(self.word(words) + self.place.weight[: words.shape[1]]))


def bert(
    layers: int = 2, hidden: int = 64, heads: int = 4, vocabulary: int = 16, sequence: int = 32, batch: int = 16
) -> Made:
    """A transformer's encoder that guesses masked words, about one in seven; each word has the same four that may come
    next. Raises `InputError` where heads don't divide what is hidden.
    """
    if hidden % heads:
        raise InputError(f"model: hidden must be a multiple of {heads} heads, got {hidden}")
    words = _text(batch, sequence, vocabulary)
    is_masked = torch.rand(words.shape) < 0.15
    is_masked[:, 0] = True  # so that there is one
    targets = words.masked_fill(~is_masked, _NO_TARGET)
    model = _Masked(layers, hidden, heads, vocabulary, sequence)
    return model, words.masked_fill(is_masked, vocabulary), _each_loss, targets


def _text(count: int, length: int, vocabulary: int) -> Tensor:
    """Sequences in which each is one of four that may follow the one before."""
    following = torch.randint(vocabulary, (vocabulary, 4), generator=_fixed())
    words = torch.randint(vocabulary, (count, length))
    for place in range(1, length):
        words[:, place] = following[words[:, place - 1], torch.randint(4, (count,))]
    return words


def _fixed() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _each_loss(scores: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=_NO_TARGET)
