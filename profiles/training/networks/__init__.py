"""Well-known networks from their public architectures, as training graphs of any batch and input size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.profiles.devices import Device, named_device
from gapless.profiles.training.builder import Gradient, NetworkBuilder, Value
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks.convolutional import (
    googlenet,
    mobilenet_v2,
    resnet50,
    resnet101,
    unet,
    unet_3d,
    vgg16,
)
from gapless.profiles.training.networks.transformers import bert_base, bert_large, gpt2_small

__all__ = ["build", "build_with_gradients", "network_names"]


@dataclass(frozen=True)
class _Network:
    """How a network is laid down, from its input size to its outputs, and the input size where none is asked for."""

    lay: Callable[[NetworkBuilder, tuple[int, ...]], Sequence[Value]]
    input_size: tuple[int, ...]


_NETWORKS = {
    "resnet50": _Network(resnet50, (224, 224)),
    "resnet101": _Network(resnet101, (224, 224)),
    "vgg16": _Network(vgg16, (224, 224)),
    "googlenet": _Network(googlenet, (224, 224)),
    "mobilenet_v2": _Network(mobilenet_v2, (224, 224)),
    "unet": _Network(unet, (416, 608)),
    "unet_3d": _Network(unet_3d, (64, 64, 64)),
    "bert_base": _Network(bert_base, (512,)),
    "bert_large": _Network(bert_large, (512,)),
    "gpt2_small": _Network(gpt2_small, (1024,)),
}


def network_names() -> list[str]:
    """The networks that `build` knows."""
    return sorted(_NETWORKS)


def build(
    name: str, batch: int, device: str | Device = "p100", input_size: int | Sequence[int] | None = None
) -> TrainingGraph:
    """One training step of a network in single precision, with times estimated for a device.

    `input_size`: height and width (depth, height and width in 3D), or the number of tokens of a transformer; one number
    stands for all axes; None for the usual size. Raises `InputError` for unknown names and sizes that don't fit.
    """
    return build_with_gradients(name, batch, device, input_size)[0]


def build_with_gradients(
    name: str, batch: int, device: str | Device = "p100", input_size: int | Sequence[int] | None = None
) -> tuple[TrainingGraph, list[Gradient]]:
    """As `build`, with the parameter gradients in the order in which they become ready."""
    if name not in _NETWORKS:
        hint = suggestion(name, _NETWORKS)
        raise InputError(
            f"network: must be one of {', '.join(network_names())}, got {name!r}" + (f"; {hint}" if hint else "")
        )
    network = _NETWORKS[name]
    axes = len(network.input_size)
    size = (
        network.input_size
        if input_size is None
        else (input_size,) * axes
        if isinstance(input_size, int)
        else input_size
    )
    if len(size) != axes or any(extent < 1 for extent in size):
        raise InputError(f"network {name!r}: input_size must be {axes} whole numbers >= 1, got {input_size}")
    net = NetworkBuilder(name, batch, named_device(device) if isinstance(device, str) else device)
    graph = net.build(*network.lay(net, tuple(size)))
    return graph, net.gradients(graph)
