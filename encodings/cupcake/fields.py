"""What a question of fusion says, and what the advice on compression asks."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.fields import Bandwidth, Choice, Field, Listed, Object, Seconds, Whole

__all__ = ["COMPRESSION", "METHODS", "QUESTION", "WHAT_IF"]

METHODS = (
    "auto", "affine", "pareto", "milp", "algorithm1", "layer-wise", "one-group", "buckets", "even-split", "selective",
)  # fmt: skip
"""`auto` is `affine` where both costs are, else `pareto`; `algorithm1` is the paper's search; the rest: baselines."""
_FIGURES = {
    "bandwidth": "other bandwidths",
    "batch": "other batch sizes, as factors of the profile's",
    "compute": "a device so many times as fast",
    "tradeoff": "encode and decode k times as fast at l k times the bytes",
    "ratio": "the compression ratio that is enough for close to linear scaling",
}


def _profiles() -> Iterable[str]:
    from gapless.profiles.gradients.named import fusion_profile_names

    return fusion_profile_names()


def _compressors() -> Iterable[str]:
    from gapless.profiles.gradients.compressors import compressor_names

    return compressor_names()


def _devices() -> Iterable[str]:
    from gapless.profiles.devices import device_names

    return device_names()


def _topologies() -> Iterable[str]:
    from gapless.topologies.files import topology_names

    return topology_names()


_PROFILE = Field(
    "profile", Object(("gapless.profiles.gradients.profile.FusionProfile",)),
    "a fusion profile: `gapless list profiles`, or a file", is_required=True, metavar="NAME|FILE", names=_profiles,
)  # fmt: skip
_COMPRESSOR = Object(("gapless.profiles.gradients.compressors.Compressor",))
_DEVICE = Object(("gapless.profiles.devices.Device",))


def _network(group: str) -> tuple[Field, ...]:
    return (
        Field("ranks", Whole(2, 10**6), "workers in a ring", metavar="N", group=group),
        Field("bandwidth", Bandwidth(), "out of a rank: 10Gbps, 1.25GB/s", metavar="B", group=group),
        Field("latency", Seconds(), "of one step of the ring (default 10us)", metavar="T", group=group),
        Field(
            "topology", Object(("gapless.topologies.topology.Topology",)),
            "or a ring through a topology's ranks, such as ndv2 or torus:4x4", metavar="NAME", names=_topologies,
            group=group,
        ),
        Field("nodes", Whole(1, 10**6), "number of its nodes (default 1)", metavar="N", group=group),
    )  # fmt: skip


_OTHER = "other costs than the profile's"

QUESTION = (
    _PROFILE,
    Field("method", Choice(METHODS), f"auto (default), {', '.join(METHODS[1:])}", "auto", metavar="NAME"),
    Field(
        "compressor", _COMPRESSOR, "`gapless list compressors`; needs a network", metavar="NAME", names=_compressors,
        group=_OTHER,
    ),
    Field(
        "device", _DEVICE, "where gradients are encoded and decoded (default v100)", metavar="NAME", names=_devices,
        group=_OTHER,
    ),
    *_network(_OTHER),
)  # fmt: skip

COMPRESSION = (
    _PROFILE,
    *_network("problem"),
    Field(
        "compressor", Listed(_COMPRESSOR), "of `gapless list compressors`, with commas between them, or all (default)",
        ("all",), metavar="NAME,NAME,...", names=_compressors,
    ),
    Field(
        "device", _DEVICE, "where gradients are encoded and decoded (default v100)", "v100", metavar="NAME",
        names=_devices,
    ),
)  # fmt: skip

WHAT_IF = (
    _PROFILE,
    Field(
        "figure", Choice(tuple(_FIGURES)), "; ".join(f"{name}: {what}" for name, what in _FIGURES.items()),
        is_required=True,
    ),
    *_network("problem"),
    Field("compressor", _COMPRESSOR, "powersgd (default)", "powersgd", metavar="NAME", names=_compressors),
)  # fmt: skip
