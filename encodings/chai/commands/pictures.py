"""Pictures of a model's heads: correlations, errors of clusters, and memberships that change with tokens, by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.clusters import between_key_heads, k_means, members, spread
from gapless.encodings.chai.parameters import Parameters
from gapless.plot.style import GREY, VERMILION, check_plot, finish, new_axes
from gapless.profiles.heads.profile import HeadProfile

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

__all__ = ["changes", "cluster_errors", "draw_changes", "draw_profile"]

Floats = NDArray[np.float64]

_MOST_SHOWN = 8
"""Matrices of correlations: of so many layers, evenly from the first to the last."""


def cluster_errors(profile: HeadProfile) -> Floats:
    """What k-means on scores spoils in each layer with 1, 2, ... clusters of key heads, as shares of that with one."""
    rounds = Parameters().k_means_rounds
    apart = between_key_heads(profile.scores, profile.key_heads)
    errors = np.array([[spread(each, k_means(each, count, rounds)) for count in range(1, profile.key_heads + 1)]
                       for each in apart])  # fmt: skip
    return np.asarray(errors / np.where(errors[:, :1] > 0, errors[:, :1], 1.0))


def changes(distances: Floats, counts: list[int], key_heads: int) -> Floats:
    """The share of key heads that use another one than a token before, (tokens - 1, layers), mean over requests.

    `distances`: over the first token, the first two, ..., (requests, tokens, layers, heads, heads).
    """
    rounds, requests, tokens = Parameters().k_means_rounds, len(distances), distances.shape[1]
    used = np.array([
        [members(apart, k_means(apart, count, rounds))
         for apart, count in zip(between_key_heads(distances[request, token], key_heads), counts, strict=True)]
        for request in range(requests) for token in range(tokens)
    ]).reshape(requests, tokens, len(counts), key_heads)  # fmt: skip
    return np.asarray((used[:, 1:] != used[:, :-1]).mean(axis=(0, 3)))


def draw_profile(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Draw how alike heads attend, a matrix for each of some layers, and above what clusters of each layer spoil."""
    check_plot()
    from matplotlib.figure import Figure

    correlations, errors = np.array(data["correlations"]), np.array(data["cluster_errors"])
    shown = np.unique(np.linspace(0, len(errors) - 1, min(len(errors), _MOST_SHOWN)).round().astype(int))
    figure = Figure(figsize=(max(6.5, 1.7 * len(shown)), 5.6), layout="constrained")
    grid = figure.add_gridspec(2, len(shown), height_ratios=(3, 2))
    ax, colours = figure.add_subplot(grid[0, :]), _colours(len(errors))
    places = [figure.add_subplot(grid[1, column]) for column in range(len(shown))]
    for layer, row in enumerate(errors):
        label = f"layer {layer}" if layer in shown else None
        ax.plot(np.arange(1, len(row) + 1), row, color=colours[layer], linewidth=1, label=label, gid=f"error-{layer}")
    ax.set(xlabel="clusters of a layer", ylabel="error of k-means on scores\n(share of that of one cluster)")
    finish(ax, legend="beside")
    for place, layer in zip(places, shown, strict=True):
        mean = float(correlations[layer][~np.eye(len(correlations[layer]), dtype=bool)].mean())
        drawn = place.imshow(correlations[layer], vmin=-1, vmax=1, cmap="RdBu_r")
        place.set_title(f"layer {layer}: {mean:.2f}", fontsize=8)
        place.set(xticks=[], yticks=[])
    figure.colorbar(drawn, ax=places, label="correlation of scores")
    return figure


def _colours(count: int) -> list[tuple[float, ...]]:
    from matplotlib import colormaps

    return [tuple(colormaps["viridis"](0.9 * each / max(1, count - 1))) for each in range(count)]


def draw_changes(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Draw which share of heads a further token makes use another one, by layer and in the mean."""
    found = np.array(data["changes"])
    ax, colours, tokens = new_axes(6.5, 3.6), _colours(found.shape[1]), np.arange(2, len(found) + 2)
    for layer, row in enumerate(found.T):
        label = f"layer {layer}" if layer in (0, found.shape[1] - 1) else None
        ax.plot(tokens, row, color=colours[layer], linewidth=0.8, label=label, gid=f"changes-{layer}")
    ax.plot(tokens, found.mean(axis=1), color=VERMILION, linewidth=2, label="all layers")
    ax.axvline(data["first_tokens"], color=GREY, linestyle="--", linewidth=1, label="heads are clustered")
    ax.set(xlabel="tokens of a request", ylabel="heads that use another one\nthan a token before", ylim=(0, None))
    return finish(ax, legend="beside").figure
