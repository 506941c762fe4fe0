"""What is asked of Cupcake: which neighbouring gradients are sent together, each group in which mode."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from gapless.lazy import lazy
from gapless.profiles.compressors import grammar
from gapless.profiles.devices import device_names
from gapless.profiles.gradients import named
from gapless.profiles.gradients.network_question import NetworkQuestion
from gapless.question import Asked, asked, said
from gapless.question.command_fields import MODEL, PLAN, REPEATS, STEPS, WAIT, output
from gapless.question.fields import Bandwidth, Choice, Field, Listed, Number, Object, Seconds, Size, Text, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gapless.profiles.compressors.compressor import Compressor
    from gapless.profiles.devices import Device
    from gapless.profiles.gradients.profile import FusionProfile

__all__ = [
    "COMPRESSOR", "COMPRESSOR_NAMES", "DEVICE", "ERRORS", "METHODS", "CompressorsQuestion", "GradientsQuestion",
    "Measuring", "ModelValidationQuestion", "Question", "RunQuestion", "Running", "ValidationQuestion",
]  # fmt: skip

METHODS = (
    "auto", "affine", "pareto", "milp", "algorithm1", "layer-wise", "one-group", "buckets", "even-split", "selective",
    "selective-buckets", "plain-buckets",
)  # fmt: skip
"""`auto` is `affine` where one mode is offered and its costs are, else `pareto`; `algorithm1` is the paper's search;
the rest: baselines."""
ERRORS = ("exact", "rounded", "unbiased", "feedback", "unknown")
COMPRESSOR_NAMES = lazy(lambda: grammar.compressor_names)
COMPRESSOR = Object(("gapless.profiles.compressors.compressor.Compressor",))
DEVICE = "v100"
"""Where gradients are encoded and decoded if nothing is said."""
_OTHER = "other costs than the profile's"


_PROFILE = Field(
    "profile", Object(("gapless.profiles.gradients.profile.FusionProfile",)),
    "a fusion profile: `gapless list profiles`, or a file", metavar="NAME|FILE",
    names=lazy(lambda: named.fusion_profile_names),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Question(NetworkQuestion):
    """The fusion of a profile's gradients, at its own costs or at compressors' published costs on a network."""

    profile: str | Path | FusionProfile = said(replace(_PROFILE, is_required=True))
    _: KW_ONLY
    method: str = asked(Choice(METHODS), f"what decides: {', '.join(METHODS)}", "auto", metavar="NAME")
    modes: Sequence[str] | None = asked(
        Listed(Text()), "modes in which a group may be sent: the profile's, or, with a network, plain and compressors; "
        "compress: all but plain", otherwise="all", metavar="NAME,NAME,...",
    )  # fmt: skip
    decode: str = asked(Choice(("after", "before")), "decode a group after its collective, or before", "after")
    error: str = asked(
        Choice(ERRORS), "the worst class of error that a mode may have: exact, ..., unknown", "unknown", metavar="CLASS"
    )
    pieces: int | None = asked(
        Size(), "cut gradients above this size, such as 4MiB", otherwise="none is cut", metavar="SIZE"
    )
    cores: float | None = asked(
        Number(1, maximum=10**6), "cores that backward pass, encoding, collectives and decoding of a rank share",
        otherwise="the profile's; as many as are needed where it says none", metavar="C",
    )  # fmt: skip
    compressor: str | Compressor | None = asked(
        COMPRESSOR, "a mode beside plain: see `gapless list compressors`; needs a network", metavar="NAME",
        names=COMPRESSOR_NAMES, group=_OTHER,
    )  # fmt: skip
    device: str | Device | None = asked(
        Object(("gapless.profiles.devices.Device",)), "where gradients are encoded and decoded", otherwise=DEVICE,
        metavar="NAME", names=device_names, group=_OTHER,
    )  # fmt: skip


_PROCESSES = Field("ranks", Whole(1, 1024), "processes", 2, metavar="P")
_HOOKS = Field(
    "hooks", Listed(Text()), "modes beside plain; see below",
    ("topk", "powersgd:4", "fp16"), metavar="MODE,MODE,...",
)  # fmt: skip
_DILATION = Field(
    "dilation", Number(1, maximum=10**6), "with step: emulated time runs so many times slower", 1.0, metavar="F"
)


@dataclass(frozen=True, repr=False)
class Measuring(Asked):
    """How gradients and hooks of a model are measured."""

    model: str = said(MODEL)
    ranks: int = said(_PROCESSES)
    hooks: Sequence[str] = said(_HOOKS)
    steps: int = said(STEPS)
    repeats: int = said(REPEATS)
    wait: float = said(WAIT)


@dataclass(frozen=True, repr=False)
class GradientsQuestion(Measuring):
    """A profile of a model's gradients, to be measured."""

    bandwidth: float | None = asked(
        Bandwidth(), "price sends on a ring of this bandwidth, such as 1Gbps", metavar="B", group="another wire"
    )
    latency: float | None = asked(
        Seconds(), "latency of one step of that ring", otherwise="10us", metavar="T", group="another wire"
    )
    within: float = asked(
        Number(0, maximum=10**6),
        "refuse costs that are further off than this share of what was measured",
        0.3,
        metavar="F",
    )
    output: str = said(output("the profile to write"))


@dataclass(frozen=True, repr=False)
class CompressorsQuestion(Asked):
    """What compressors take on this machine."""

    profile: str | Path | FusionProfile = said(
        replace(_PROFILE, help="of whose gradients: `gapless list profiles`, or a file", default="resnet50")
    )
    compressor: Sequence[str] = asked(
        Listed(Text()), "modes as for `profile gradients`",
        ("signsgd", "qsgd", "powersgd:4", "terngrad", "ms-topk", "topk", "dgc", "rand-k", "atomo"),
        metavar="MODE,MODE,...",
    )  # fmt: skip
    ranks: int = asked(Whole(1, 10**6), "ranks whose messages are decoded", 8, metavar="P")
    repeats: int = said(replace(REPEATS, help="runs of each that count", default=5))


@dataclass(frozen=True, repr=False)
class Running(Asked):
    """How fusions run."""

    model: str = said(MODEL)
    ranks: int = said(_PROCESSES)
    emulate: str = asked(
        Choice(("wire", "step", "nothing")),
        "wire: sends take what the plan says; step: computation too; nothing", "wire",
    )  # fmt: skip
    dilation: float = said(_DILATION)
    repeats: int = said(REPEATS)
    wait: float = said(WAIT)
    ranks_per_node: int = asked(
        Whole(1, 1024), "for two levels: gradients stay plain in nodes of so many processes", 1, metavar="N"
    )


@dataclass(frozen=True, repr=False)
class RunQuestion(Running):
    """A plan under DDP, beside others."""

    plan: str = said(PLAN)
    train: int = asked(
        Whole(0, 10**6), "then descend so many steps with each, and say how long each takes to a loss", 0,
        group="time to a loss",
    )  # fmt: skip
    rate: float = asked(Number(0, strict=True, maximum=10**6), "learning rate of SGD", 0.1, group="time to a loss")
    batches: int = asked(Whole(1, 10**6), "batches of each process, in turns", 4, metavar="N", group="time to a loss")
    loss: float | None = asked(
        Number(0, maximum=10**9), "the loss to be reached", otherwise="the greatest at an end",
        group="time to a loss",
    )  # fmt: skip


@dataclass(frozen=True, repr=False)
class _Settings(Asked):
    """Models, numbers of processes and wires, of which every combination runs."""

    model: Sequence[str] = asked(
        Listed(Text(), ";"), "a model as for `profile gradients`; may be given again", is_required=True,
        metavar=MODEL.metavar,
    )  # fmt: skip
    ranks: Sequence[int] = asked(Listed(Whole(1, 1024)), "numbers of processes", (2,), metavar="P,P,...")
    bandwidth: Sequence[float] = asked(
        Listed(Bandwidth()), "bandwidths of the rings on which sends are priced", is_required=True, metavar="B,B,..."
    )
    latency: float | None = asked(Seconds(), "latency of one step of the rings", otherwise="10us", metavar="T")
    emulate: str = asked(Choice(("wire", "step")), "wire, or step: computation too", "wire")
    dilation: float = said(_DILATION)
    wait: float = said(WAIT)


@dataclass(frozen=True, repr=False)
class ValidationQuestion(_Settings):
    """Predicted steps against measured ones, of several models in several settings."""

    hooks: Sequence[str] = said(_HOOKS)
    steps: int = said(STEPS)
    repeats: int = said(REPEATS)


@dataclass(frozen=True, repr=False)
class ModelValidationQuestion(_Settings):
    """What the performance model says against what is measured, of several models in several settings."""

    hooks: Sequence[str] = said(replace(_HOOKS, default=("powersgd:4", "topk", "signsgd", "qsgd", "ms-topk")))
    bucket: int = asked(Size(), "bytes of a bucket of plain gradients", 25_000_000, metavar="SIZE")
    gamma: float | None = asked(
        Number(1, maximum=100), "slow-down of a backward pass beside communication",
        otherwise="1.07 where computation is real, else 1", metavar="X",
    )  # fmt: skip
    warm_up: int = asked(Whole(3, 10**6), "steps before any counts", 10, metavar="N")
    repeats: int = said(replace(REPEATS, help="steps of each that count, and runs of each hook", default=50))
