"""Recommendation, generation, graphs and other models of the zoo, small and with random weights."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional
from zoo_cases import Case, own_loss

__all__ = ["TABLES"]

ROWS, FIELDS, IDS = 64, 8, 100


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """DLRM: bags of embeddings and dense features, their products, a network above."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(IDS, width, mode="sum") for _ in range(FIELDS)])
        pairs = (FIELDS + 1) * FIELDS // 2
        self.bottom, self.top = mlp(13, 64, width), mlp(width + pairs, 128, 64, 1)
        rows, columns = torch.tril_indices(FIELDS + 1, FIELDS + 1, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(dense)
        parts = torch.stack([dense, *(bag(ids[:, k]) for k, bag in enumerate(self.bags))], 1)
        products = (parts @ parts.transpose(1, 2))[:, self.rows, self.columns]
        return functional.binary_cross_entropy_with_logits(self.top(torch.cat([dense, products], 1))[:, 0], clicked)


def dlrm() -> Case:
    return Case(
        Dlrm(), (torch.randn(ROWS, 13), torch.randint(IDS, (ROWS, FIELDS, 3)), torch.rand(ROWS).round()), own_loss
    )


class DeepFm(nn.Module):
    """DeepFM: a factorisation machine beside a deep network, on the same embeddings."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(IDS * FIELDS, 1), nn.Embedding(IDS * FIELDS, width)
        self.deep = nn.Sequential(
            nn.Linear(FIELDS * width, 128), nn.BatchNorm1d(128), nn.ReLU(True), nn.Dropout(0.2), nn.Linear(128, 1)
        )
        self.register_buffer("offsets", IDS * torch.arange(FIELDS))

    def forward(self, ids: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
        ids = ids + self.offsets
        found = self.second(ids)
        pairs = 0.5 * (found.sum(1).square() - found.square().sum(1)).sum(-1, keepdim=True)
        score = self.first(ids).sum(1) + pairs + self.deep(found.flatten(1))
        return functional.binary_cross_entropy(score.sigmoid()[:, 0], clicked)


class Cross(nn.Module):
    """Deep and cross: products of the input with what was made of it."""

    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.layers, self.deep = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)]), mlp(width, 128, 64)
        self.head = nn.Linear(width + 64, 1)

    def forward(self, row: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
        found = row
        for layer in self.layers:
            found = row * layer(found) + found
        score = self.head(torch.cat([found, self.deep(row)], 1))[:, 0]
        return functional.binary_cross_entropy_with_logits(score, clicked)


class Towers(nn.Module):
    """Two towers, with the other rows of the batch as what wasn't chosen."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(IDS, width), nn.Embedding(IDS, width)
        self.towers = nn.ModuleList([mlp(width, 64, width), mlp(width, 64, width)])
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        one, other = self.towers[0](self.users(user)), self.towers[1](self.items(item))
        scores = functional.normalize(one, dim=-1) @ functional.normalize(other, dim=-1).T * self.scale.exp()
        return functional.cross_entropy(scores, torch.arange(len(user)))


class Graph(nn.Module):
    """Graph convolutions over given edges; with attention, its weights are shares among the edges of a node."""

    def __init__(self, is_attending: bool, is_picking: bool = False, width: int = 32) -> None:
        super().__init__()
        self.is_attending, self.is_picking = is_attending, is_picking
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.score, self.head = nn.Linear(2 * width, 1), nn.Linear(width, 4)

    def forward(self, node: torch.Tensor, edge: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        found, (source, target) = node, edge
        if self.is_picking:  # without loops, as data has them
            kept = (source != target).nonzero()[:, 0]
            source, target = source[kept], target[kept]
        degree = torch.ones_like(source, dtype=node.dtype)
        degree = torch.zeros(len(node)).index_add(0, target, degree).clamp(min=1)
        for layer in self.layers:
            sent = layer(found)[source]
            if self.is_attending:
                weight = functional.leaky_relu(self.score(torch.cat([sent, found[target]], -1)), 0.2).exp()
                total = torch.zeros(len(node), 1).index_add(0, target, weight)
                sent = sent * weight / total[target].clamp(min=1e-6)
            else:
                sent = sent / degree[target, None]
            found = functional.elu(found + torch.zeros_like(found).index_add(0, target, sent))
        return functional.cross_entropy(self.head(found), label)


def graph(is_attending: bool = False, is_picking: bool = False) -> Case:
    made = torch.randn(50, 32), torch.randint(50, (2, 300)), torch.randint(4, (50,))
    return Case(Graph(is_attending, is_picking), made, own_loss)


class Points(nn.Module):
    """PointNet: each point alone, then the largest of all."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(True), nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64)
        )
        self.head = nn.Linear(64, 10)

    def forward(self, point: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        found = self.layers(point.transpose(1, 2)).max(-1).values
        return functional.cross_entropy(self.head(found), label)


class Field(nn.Module):
    """NeRF: colours and densities at points of rays, summed along each."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.second = mlp(36, width, width), mlp(width + 36, width, 4)

    def forward(self, point: torch.Tensor, colour: torch.Tensor) -> torch.Tensor:
        angles = torch.cat([point * 2.0**k for k in range(6)], -1)
        found = torch.cat([angles.sin(), angles.cos()], -1)
        made = self.second(torch.cat([functional.relu(self.first(found)), found], -1))
        opaque = 1 - torch.exp(-functional.relu(made[..., 3]) * 0.1)
        seen = torch.cumprod(torch.cat([torch.ones_like(opaque[:, :1]), 1 - opaque + 1e-10], 1), 1)[:, :-1]
        return functional.mse_loss(((opaque * seen)[..., None] * made[..., :3].sigmoid()).sum(1), colour)


class Physics(nn.Module):
    """A network that solves an equation: derivatives by its input go forward, so that one backward pass is enough."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList([nn.Linear(k, width) for k in (1, width, width)]), nn.Linear(width, 1)

    def forward(self, place: torch.Tensor) -> torch.Tensor:
        found, first, second = place, torch.ones_like(place), torch.zeros_like(place)
        for layer in self.layers:
            found, first, second = layer(found).tanh(), first @ layer.weight.T, second @ layer.weight.T
            slope = 1 - found.square()
            second = slope * second - 2 * found * slope * first.square()
            first = slope * first
        return (second @ self.head.weight.T + self.head(found)).square().mean()


class Ode(nn.Module):
    """A neural differential equation, by eight steps of Runge and Kutta."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.rate, self.head = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, width)), nn.Linear(width, 4)

    def forward(self, given: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        found, step = given, 0.125
        for _ in range(8):
            one = self.rate(found)
            two = self.rate(found + 0.5 * step * one)
            three = self.rate(found + 0.5 * step * two)
            found = found + step / 6 * (one + 2 * two + 2 * three + self.rate(found + step * three))
        return functional.cross_entropy(self.head(found), label)


class Flow(nn.Module):
    """RealNVP: half of the values scale and move the other half."""

    def __init__(self, width: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([mlp(width // 2, 64, width) for _ in range(layers)])

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        (one, other), volume = given.chunk(2, 1), 0
        for layer in self.layers:
            scale, move = layer(one).chunk(2, 1)
            scale = scale.tanh()
            one, other, volume = other * scale.exp() + move, one, volume + scale.sum(1)
        return (0.5 * (one.square().sum(1) + other.square().sum(1)) - volume).mean()


def convolutions(*widths: int, up: bool = False) -> nn.Sequential:
    kind = nn.ConvTranspose2d if up else nn.Conv2d
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [kind(inputs, outputs, 4, 2, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers[:-2])


class Autoencoder(nn.Module):
    """Convolutions down and up; with noise between, a VAE that returns its parts."""

    def __init__(self, has_noise: bool) -> None:
        super().__init__()
        self.down, self.up, self.has_noise = convolutions(3, 16, 32), convolutions(16, 16, 3, up=True), has_noise
        self.inner = nn.Conv2d(32, 32 if has_noise else 16, 1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.inner(functional.leaky_relu(self.down(image), 0.2))
        if not self.has_noise:
            return {"made": self.up(found)}
        mean, log = found.chunk(2, 1)
        return {"made": self.up(mean + torch.randn_like(mean) * (0.5 * log).exp()), "mean": mean, "log": log}


def autoencoder(has_noise: bool) -> Case:
    image = torch.randn(8, 3, 32, 32)

    def loss(made: dict[str, torch.Tensor]) -> torch.Tensor:
        total = functional.mse_loss(made["made"], image)
        if has_noise:
            total = total - 0.5 * (1 + made["log"] - made["mean"].square() - made["log"].exp()).mean()
        return total

    return Case(Autoencoder(has_noise), (image,), loss)


class Generator(nn.Module):
    """Images from noise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.up = nn.Linear(16, 32 * 16), convolutions(32, 32, 16, 3, up=True)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.up(self.first(noise).view(-1, 32, 4, 4)).tanh()


def generator() -> Case:
    judge = nn.Sequential(convolutions(3, 16, 32), nn.Flatten(), nn.Linear(32 * 64, 1)).requires_grad_(False)
    return Case(Generator(), (torch.randn(8, 16),), lambda made: functional.softplus(-judge(made)).mean())


class Denoiser(nn.Module):
    """A diffusion UNet: blocks with group norm that know the time, and attention at the bottom."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.first, self.last = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, k) for k in (width, width, 2 * width)])
        self.mix = nn.ModuleList([nn.Conv2d(k, width, 3, 1, 1) for k in (width, width, 2 * width)])
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, width, 2) / width))

    def forward(self, image: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * self.rates
        now = self.time(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None]
        top = self.first(image)
        top = top + self.mix[0](functional.silu(self.norms[0](top))) + now
        low = functional.avg_pool2d(top, 2)
        low = low + self.mix[1](functional.silu(self.norms[1](low))) + now
        flat = low.flatten(2).transpose(1, 2)
        low = (flat + self.attention(flat, flat, flat, need_weights=False)[0]).transpose(1, 2).view(low.shape)
        found = torch.cat([top, functional.interpolate(low, scale_factor=2, mode="nearest")], 1)
        return self.last(self.mix[2](functional.silu(self.norms[2](found))))


def denoiser() -> Case:
    noise = torch.randn(4, 3, 16, 16)
    return Case(
        Denoiser(), (noise + torch.randn(4, 3, 16, 16), torch.rand(4)), lambda made: functional.mse_loss(made, noise)
    )


class Siamese(nn.Module):
    """Two views of images through one encoder, each to be nearer to its own other view than to the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = (
            convolutions(3, 16, 32, 32),
            nn.utils.parametrizations.spectral_norm(nn.Linear(32, 16)),
        )

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        made = [functional.normalize(self.head(self.encoder(view).mean((2, 3))), dim=-1) for view in (one, other)]
        scores = made[0] @ made[1].T / 0.1
        wanted = torch.arange(len(one))
        return functional.cross_entropy(scores, wanted) + functional.cross_entropy(scores.T, wanted)


class Policy(nn.Module):
    """An actor and a critic; the loss, with its distributions, is outside."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.actor, self.critic = mlp(12, 64, 64), nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = torch.tanh(self.body(seen))
        return self.actor(found), self.critic(found)[:, 0]


def policy() -> Case:
    done, gained, before = torch.randint(4, (ROWS,)), torch.randn(ROWS), -torch.rand(ROWS) - 1

    def loss(made: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        chances = torch.distributions.Categorical(logits=made[0])
        ratio = (chances.log_prob(done) - before).exp()
        gain = torch.minimum(ratio * gained, ratio.clamp(0.8, 1.2) * gained)
        return -gain.mean() + (made[1] - gained).square().mean() - 0.01 * chances.entropy().mean()

    return Case(Policy(), (torch.randn(ROWS, 12),), loss)


TABLES = {
    "DLRM": dlrm,
    "DeepFM": lambda: Case(DeepFm(), (torch.randint(IDS, (ROWS, FIELDS)), torch.rand(ROWS).round()), own_loss),
    "Deep and cross": lambda: Case(Cross(), (torch.randn(ROWS, 64), torch.rand(ROWS).round()), own_loss),
    "Two towers": lambda: Case(Towers(), (torch.randint(IDS, (ROWS,)), torch.randint(IDS, (ROWS,))), own_loss),
    "Graph convolutions": graph,
    "Graph attention": lambda: graph(is_attending=True),
    "Graph, edges picked by data": lambda: graph(is_picking=True),
    "PointNet": lambda: Case(Points(), (torch.randn(8, 64, 3), torch.randint(10, (8,))), own_loss),
    "NeRF": lambda: Case(Field(), (torch.randn(16, 24, 3), torch.rand(16, 3)), own_loss),
    "Physics-informed": lambda: Case(Physics(), (torch.rand(256, 1),), own_loss),
    "Neural ODE": lambda: Case(Ode(), (torch.randn(ROWS, 32), torch.randint(4, (ROWS,))), own_loss),
    "RealNVP": lambda: Case(Flow(), (torch.randn(ROWS, 16),), own_loss),
    "Autoencoder": lambda: autoencoder(has_noise=False),
    "VAE": lambda: autoencoder(has_noise=True),
    "GAN generator": generator,
    "Diffusion UNet": denoiser,
    "Siamese, spectral norm": lambda: Case(Siamese(), (torch.randn(8, 3, 32, 32), torch.randn(8, 3, 32, 32)), own_loss),
    "Actor and critic": policy,
}
"""How each is made."""
