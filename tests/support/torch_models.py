"""Models with random weights for the tests of training steps: small by default, of a published size where asked."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

__all__ = ["Bert", "Case", "Fcn", "Gpt", "ResNet", "UNet", "cases"]

Case = tuple[nn.Module, tuple[torch.Tensor, ...]]
"""A module that returns its loss, and the arguments of a call."""


class Bottleneck(nn.Module):
    """A residual block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.convolutions = nn.ModuleList([
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.Conv2d(width, outputs, 1, bias=False),
        ])  # fmt: skip
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.BatchNorm2d(outputs)])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = image
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            found = norm(convolution(found))
            if number < 2:
                found = functional.relu(found, inplace=True)
        return functional.relu(found + self.shortcut(image), inplace=True)


class ResNet(nn.Module):
    """ResNet-50 with dropout before its classifier; `blocks` and `width` make it smaller."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        layers: list[nn.Module] = []
        inputs = width
        for number, count in enumerate(blocks):
            inner = width * 2**number
            for place in range(count):
                layers.append(Bottleneck(inputs, inner, 2 if number and not place else 1))
                inputs = 4 * inner
        self.layers = nn.Sequential(*layers)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(inputs, classes)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        found = self.layers(self.stem(image)).mean((2, 3))
        return functional.cross_entropy(self.head(self.drop(found)), label)


class Fcn(nn.Module):
    """FCN on ResNet-50: its scores are brought to the size of the image by bilinear interpolation."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 21) -> None:
        super().__init__()
        self.trunk = ResNet(blocks, width, classes)
        channels = self.trunk.head.in_features
        self.trunk.head = nn.Identity()
        self.head = nn.Sequential(
            nn.Conv2d(channels, channels // 4, 3, padding=1, bias=False), nn.BatchNorm2d(channels // 4), nn.ReLU(),
            nn.Dropout(0.1), nn.Conv2d(channels // 4, classes, 1),
        )  # fmt: skip

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        found = self.head(self.trunk.layers(self.trunk.stem(image)))
        return functional.cross_entropy(functional.interpolate(found, image.shape[-2:], mode="bilinear"), label)


def double(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions with batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    """UNet with dropout at its deepest level."""

    def __init__(self, width: int = 16, depth: int = 4, classes: int = 4) -> None:
        super().__init__()
        self.down = nn.ModuleList([double(3 if not k else width * 2 ** (k - 1), width * 2**k) for k in range(depth)])
        self.deepest = nn.Sequential(double(width * 2 ** (depth - 1), width * 2**depth), nn.Dropout(0.3))
        sizes = [width * 2**k for k in reversed(range(depth))]
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * size, size, 2, 2) for size in sizes])
        self.join = nn.ModuleList([double(2 * size, size) for size in sizes])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        skips, found = [], image
        for level in self.down:
            found = level(found)
            skips.append(found)
            found = functional.max_pool2d(found, 2)
        found = self.deepest(found)
        for up, join, skip in zip(self.up, self.join, reversed(skips), strict=True):
            found = join(torch.cat([skip, up(found)], 1))
        return functional.cross_entropy(self.head(found), label)


class Attention(nn.Module):
    """Multi-head attention."""

    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, found: torch.Tensor) -> torch.Tensor:
        batch, length, width = found.shape
        parts = self.inner(found).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        dropout = self.dropout if self.training else 0.0
        found = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=self.causal)
        return self.outer(found.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A transformer block, with its norms before (GPT-2) or behind (BERT) the sublayers."""

    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.before = causal
        self.attention = Attention(width, heads, causal, dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, found: torch.Tensor) -> torch.Tensor:
        if self.before:
            found = found + self.drop(self.attention(self.norms[0](found)))
            return found + self.drop(self.mlp(self.norms[1](found)))
        found = self.norms[0](found + self.drop(self.attention(found)))
        return self.norms[1](found + self.drop(self.mlp(found)))


class Gpt(nn.Module):
    """GPT-2-like: causal, and its head tied to its embedding."""

    causal = True

    def __init__(
        self, width: int = 32, layers: int = 2, heads: int = 4, words: int = 64, length: int = 16, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList([Block(width, heads, self.causal, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, word: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        place = torch.arange(word.shape[1], device=word.device)
        found = self.drop(self.words(word) + self.places(place))
        for layer in self.layers:
            found = layer(found)
        return functional.cross_entropy(self.head(self.norm(found)).flatten(0, 1), target.flatten())


class Bert(Gpt):
    """BERT-like: not causal, norms behind the sublayers."""

    causal = False


def cases() -> dict[str, Case]:
    """A small model of each kind."""
    torch.manual_seed(0)
    image, pixel = torch.randn(4, 3, 32, 32), torch.randint(4, (4, 32, 32))
    word, target = torch.randint(64, (4, 16)), torch.randint(64, (4, 16))
    return {
        "resnet": (ResNet((1, 1, 2), 8, 10), (image, torch.randint(10, (4,)))),
        "unet": (UNet(8, 2), (image, pixel)),
        "fcn": (Fcn((1, 1, 2), 8, 4), (image, pixel)),
        "gpt": (Gpt(), (word, target)),
        "bert": (Bert(), (word, target)),
    }
