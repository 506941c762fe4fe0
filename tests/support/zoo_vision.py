"""Vision models of the zoo, small and with random weights. Each function makes a case."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import nn
from torch.nn import functional
from torch_models import Fcn, ResNet, UNet
from zoo_cases import Case, own_loss

__all__ = ["VISION"]

CLASSES = 10


def images(batch: int = 8, size: int = 32) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def labels(batch: int = 8) -> torch.Tensor:
    return torch.randint(CLASSES, (batch,))


class Classifier(nn.Module):
    """A trunk that makes features of images, with its head and its loss."""

    def __init__(self, trunk: nn.Module, width: int) -> None:
        super().__init__()
        self.trunk, self.head = trunk, nn.Linear(width, CLASSES)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        found = self.trunk(image)
        return functional.cross_entropy(self.head(found.mean((2, 3)) if found.dim() == 4 else found), label)


def classifier(trunk: nn.Module, width: int, size: int = 32, is_last: bool = False) -> Case:
    """`is_last`: channels last, weights and images."""
    model, image = Classifier(trunk, width), images(size=size)
    if is_last:
        model, image = model.to(memory_format=torch.channels_last), image.to(memory_format=torch.channels_last)
    return Case(model, (image, labels()), own_loss)


def resnet(is_last: bool = False) -> Case:
    model, image = ResNet((1, 1, 2), 8, CLASSES), images()
    if is_last:
        model, image = model.to(memory_format=torch.channels_last), image.to(memory_format=torch.channels_last)
    return Case(model, (image, labels()), own_loss)


def vgg() -> Case:
    layers: list[nn.Module] = []
    inputs = 3
    for width in (16, 32, 64):
        layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.ReLU(True), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(True)]
        layers += [nn.MaxPool2d(2)]
        inputs = width
    layers += [nn.Flatten(), nn.Linear(64 * 16, 64), nn.ReLU(True), nn.Dropout(0.5)]
    return classifier(nn.Sequential(*layers), 64)


class Inverted(nn.Module):
    """An inverted residual block of MobileNetV2, with squeeze and excitation where asked."""

    def __init__(self, inputs: int, outputs: int, stride: int, act: type[nn.Module], squeeze: bool = False) -> None:
        super().__init__()
        wide = 4 * inputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), act(inplace=True))
        self.depth = nn.Sequential(
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), act(inplace=True)
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, inputs, 1), nn.SiLU(inplace=True), nn.Conv2d(inputs, wide, 1),
            nn.Sigmoid(),
        ) if squeeze else None  # fmt: skip
        self.project = nn.Sequential(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.is_same = stride == 1 and inputs == outputs

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.depth(self.expand(image))
        if self.squeeze is not None:
            found = found * self.squeeze(found)
        found = self.project(found)
        return image + found if self.is_same else found


def mobilenet(act: type[nn.Module] = nn.ReLU6, squeeze: bool = False) -> Case:
    stem = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), act(inplace=True)]
    sizes = [(8, 16, 1), (16, 16, 1), (16, 24, 2), (24, 24, 1)]
    return classifier(nn.Sequential(*stem, *(Inverted(*size, act, squeeze) for size in sizes)), 24)


class ConvNextBlock(nn.Module):
    """Depthwise convolution, layer norm, two linear layers, a learnt scale, and paths that are dropped."""

    def __init__(self, width: int, drop: float) -> None:
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 7, 1, 3, groups=width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale, self.drop = nn.Parameter(torch.full((width,), 0.1)), drop

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.scale * self.mlp(self.norm(self.depth(image).permute(0, 2, 3, 1)))
        if self.training:
            kept = torch.rand(image.shape[0], 1, 1, 1) >= self.drop
            found = found * kept / (1 - self.drop)
        return image + found.permute(0, 3, 1, 2)


def convnext() -> Case:
    trunk = nn.Sequential(
        nn.Conv2d(3, 16, 2, 2), ConvNextBlock(16, 0.1), ConvNextBlock(16, 0.1),
        nn.Conv2d(16, 32, 2, 2), ConvNextBlock(32, 0.2), ConvNextBlock(32, 0.2),
    )  # fmt: skip
    return classifier(trunk, 32, is_last=True)


class Mixer(nn.Module):
    """MLP-Mixer: linear layers over patches, then over channels."""

    def __init__(self, width: int = 32, patches: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers)])
        sizes = [patches, width] * layers
        self.mlps = nn.ModuleList([nn.Sequential(nn.Linear(k, 2 * k), nn.GELU(), nn.Linear(2 * k, k)) for k in sizes])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.patch(image).flatten(2).transpose(1, 2)
        for number, (norm, mlp) in enumerate(zip(self.norms, self.mlps, strict=True)):
            now = norm(found)
            found = found + (mlp(now) if number % 2 else mlp(now.transpose(1, 2)).transpose(1, 2))
        return found.mean(1)


class Vit(nn.Module):
    """A vision transformer of PyTorch's own layers."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.patch(image).flatten(2).transpose(1, 2)
        found = torch.cat([self.first.expand(len(found), -1, -1), found], 1) + self.places
        return self.layers(found)[:, 0]


class WindowAttention(nn.Module):
    """Attention in windows of Swin, shifted or not, with a table of relative positions."""

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.inner, self.outer, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        place = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (place[:, :, None] - place[:, None]) + window - 1
        self.register_buffer("apart", apart[0] * (2 * window - 1) + apart[1])

    def forward(self, found: torch.Tensor) -> torch.Tensor:
        batch, size, _, width = found.shape
        window, count = self.window, size // self.window
        now = torch.roll(self.norm(found), (-self.shift, -self.shift), (1, 2))
        now = now.view(batch, count, window, count, window, width).permute(0, 1, 3, 2, 4, 5)
        parts = self.inner(now.reshape(-1, window * window, width))
        query, key, value = parts.view(-1, window**2, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.table[self.apart.flatten()].view(window**2, window**2, -1).permute(2, 0, 1)
        weights = (query * (width // self.heads) ** -0.5 @ key.transpose(-2, -1) + bias).softmax(-1)
        now = self.outer((weights @ value).transpose(1, 2).reshape(-1, window, window, width))
        now = now.view(batch, count, count, window, window, width).permute(0, 1, 3, 2, 4, 5)
        now = torch.roll(now.reshape(batch, size, size, width), (self.shift, self.shift), (1, 2))
        found = found + now
        return found + self.mlp(found)


class Swin(nn.Module):
    """Two stages of windows, with a merge of patches between."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 2, 2)
        self.first = nn.Sequential(WindowAttention(width, 2, 4, 0), WindowAttention(width, 2, 4, 2))
        self.merge = nn.Linear(4 * width, 2 * width, bias=False)
        self.second = nn.Sequential(WindowAttention(2 * width, 4, 4, 0), WindowAttention(2 * width, 4, 4, 2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.first(self.patch(image).permute(0, 2, 3, 1))
        parts = [found[:, row::2, column::2] for row in (0, 1) for column in (0, 1)]
        return self.second(self.merge(torch.cat(parts, -1))).mean((1, 2))


class Dense(nn.Module):
    """DenseNet: each layer reads what all before it have made."""

    def __init__(self, growth: int = 8, layers: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1, bias=False)
        self.layers = nn.ModuleList(
            [
                nn.Sequential(
                    nn.BatchNorm2d(16 + k * growth),
                    nn.ReLU(True),
                    nn.Conv2d(16 + k * growth, growth, 3, 1, 1, bias=False),
                )
                for k in range(layers)
            ]
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = [self.stem(image)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class Shuffle(nn.Module):
    """A unit of ShuffleNetV2: half of the channels pass, and all are shuffled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(True),
            nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(True),
        )  # fmt: skip

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first, second = image.chunk(2, 1)
        found = torch.cat([first, self.branch(second)], 1)
        batch, width, height, breadth = found.shape
        return found.view(batch, 2, width // 2, height, breadth).transpose(1, 2).flatten(1, 2)


class Pyramid(nn.Module):
    """A feature pyramid over a ResNet, with a head for boxes and classes at each level; their losses are outside."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = ResNet((1, 1, 1), 8, CLASSES)
        self.trunk.head = nn.Identity()
        self.side = nn.ModuleList([nn.Conv2d(width, 16, 1) for width in (32, 64, 128)])
        self.head = nn.Conv2d(16, CLASSES + 4, 3, 1, 1)

    def forward(self, image: torch.Tensor) -> list[torch.Tensor]:
        found, levels = self.trunk.stem(image), []
        for layer in self.trunk.layers:
            found = layer(found)
            levels.append(found)
        made = [side(level) for side, level in zip(self.side, levels, strict=True)]
        for k in (1, 0):
            made[k] = made[k] + functional.interpolate(made[k + 1], size=made[k].shape[-2:], mode="nearest")
        return [self.head(level) for level in made]


def pyramid() -> Case:
    def loss(levels: list[torch.Tensor]) -> torch.Tensor:
        return sum(level[:, :CLASSES].sigmoid().mean() + level[:, CLASSES:].abs().mean() for level in levels)

    return Case(Pyramid(), (images(4, 64),), loss)


class Detr(nn.Module):
    """DETR: a small trunk, an encoder and a decoder with queries; the loss matches sets, outside."""

    def __init__(self, width: int = 32, queries: int = 6) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, width, 4, 4), nn.BatchNorm2d(width), nn.ReLU(True))
        self.places, self.queries = nn.Parameter(torch.randn(64, width)), nn.Embedding(queries, width)
        self.transformer = nn.Transformer(width, 4, 1, 2, 64, 0.1, batch_first=True)
        self.classes, self.boxes = nn.Linear(width, CLASSES + 1), nn.Linear(width, 4)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.trunk(image).flatten(2).transpose(1, 2) + self.places
        found = self.transformer(found, self.queries.weight.expand(len(image), -1, -1))
        return {"classes": self.classes(found), "boxes": self.boxes(found).sigmoid()}


def detr() -> Case:
    wanted, places = torch.randint(CLASSES, (4, 3)), torch.rand(4, 3, 4)

    def loss(made: dict[str, torch.Tensor]) -> torch.Tensor:
        total = torch.zeros(())
        for scores, boxes, label, place in zip(made["classes"], made["boxes"], wanted, places, strict=True):
            cost = torch.cdist(boxes, place, 1) - scores.softmax(-1)[:, label]
            pairs = permutations(range(len(scores)), len(label))
            rows = list(min(pairs, key=lambda row: sum(cost[k, j].item() for j, k in enumerate(row))))
            target = torch.full((len(scores),), CLASSES)
            target[rows] = label
            total = total + functional.cross_entropy(scores, target) + (boxes[rows] - place).abs().mean()
        return total

    return Case(Detr(), (images(4),), loss)


VISION = {
    "ResNet": resnet,
    "ResNet, channels last": lambda: resnet(is_last=True),
    "VGG, in place": vgg,
    "MobileNetV2, in place": mobilenet,
    "EfficientNet-like": lambda: mobilenet(nn.SiLU, squeeze=True),
    "ShuffleNetV2-like": lambda: classifier(
        nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), *(Shuffle(16) for _ in "123")), 16
    ),
    "DenseNet": lambda: classifier(Dense(), 64),
    "ConvNeXt, channels last": convnext,
    "MLP-Mixer": lambda: classifier(Mixer(), 32),
    "Vision transformer": lambda: classifier(Vit(), 32),
    "Swin-like": lambda: classifier(Swin(), 48),
    "UNet": lambda: Case(UNet(8, 2), (images(4), torch.randint(4, (4, 32, 32))), own_loss),
    "FCN": lambda: Case(Fcn((1, 1, 2), 8, 4), (images(4), torch.randint(4, (4, 32, 32))), own_loss),
    "Feature pyramid": pyramid,
    "DETR, set loss outside": detr,
}
"""How each is made."""
