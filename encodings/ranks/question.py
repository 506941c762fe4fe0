"""What is asked of ranks: how strongly each layer of a training is compressed, and when; and what its commands are
asked, a profile and a run.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.profiles.gradients.network_question import LATENCY_S
from gapless.question import Asked, asked, said
from gapless.question.command_fields import MODEL, PLAN, WAIT_FOR_EACH, output, plot
from gapless.question.fields import Bandwidth, Choice, Listed, Number, Object, Seconds, Share, SizeOrShare, Text, Whole
from gapless.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gapless.profiles.compression.trace import CompressionTrace

__all__ = [
    "METHODS", "METHODS_BY_EPOCH", "PHASES", "ProfileQuestion", "Question", "RatesQuestion", "RegimesQuestion",
    "RunQuestion", "TrainingQuestion",
]  # fmt: skip

METHODS_BY_EPOCH = (
    "accordion", "adaqs", "first-epochs", "hand-written", "hand-written-reversed", "last-epochs", "random", "reversed",
)  # fmt: skip
"""Rules that need modes by epoch."""
METHODS = ("auto", "budget", "milp", "constant", *METHODS_BY_EPOCH)
"""`auto`: the dynamic programme `budget` where data is the only limit, else `milp`; the others are rules."""
PHASES = ("static", "epoch")

_FLOAT_BYTES = 4


def _data(value: object) -> int | Share:
    """Bytes of a text such as 1571.8Mfloats, a size, or a share."""
    if isinstance(value, str) and value.strip().endswith("floats"):
        try:
            return _FLOAT_BYTES * parse_bytes(value.strip().removesuffix("floats"), "")
        except InputError:
            raise InputError(f"must be a number of floats such as 1571.8Mfloats, got {value!r}") from None
    try:
        return SizeOrShare()(value)
    except InputError as error:
        if isinstance(value, str):
            raise InputError(
                f"must be floats such as 1571.8Mfloats, a size, or a share such as 0.3x, got {value!r}"
            ) from None
        raise error


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """The modes of a trace's layers within a budget.

    `trace`: a file that `gapless profile compression` wrote, or the trace. `data`: bytes that a rank may send, or a
    share of what it sends in the mode that sends most. `workers`, `bandwidth`, `latency`: of a ring. `modes`: those
    offered, None for all of the trace. The others: the fields of `Problem`. Raises `InputError` naming the field.
    """

    trace: str | Path | CompressionTrace = asked(
        Object(("gapless.profiles.compression.trace.CompressionTrace",)),
        "what `gapless profile compression` wrote",
        is_required=True,
        metavar="FILE",
    )
    _: KW_ONLY
    data: int | Share | None = asked(
        _data,
        "the most that a worker sends in all: 1571.8Mfloats, 6.3GB, or 0.3x of what the costliest mode sends",
        metavar="DATA",
    )
    step_time: float | None = asked(
        Seconds(), "the longest that a step takes on the network, such as 10ms", metavar="T"
    )
    phases: str = asked(Choice(PHASES), "one mode a layer: static, or by epoch", "static")
    switches: int | None = asked(
        Whole(0), "how many epochs may begin with other modes than the one before", otherwise="any", metavar="N"
    )
    modes: Sequence[str] | None = asked(
        Listed(Text()),
        "modes of the trace that are offered, such as powersgd:1,powersgd:4",
        otherwise="all",
        metavar="MODE,...",
    )
    method: str = asked(Choice(METHODS), f"what decides: {', '.join(METHODS)}", "auto", metavar="NAME")
    workers: int | None = asked(Whole(1, 10**6), "number of workers, on a ring", metavar="P", group="network")
    bandwidth: float | None = asked(
        Bandwidth(), "bandwidth out of a worker, such as 10Gbps", metavar="B", group="network"
    )
    latency: float | None = asked(Seconds(), "latency of a message", otherwise=LATENCY_S, metavar="T", group="network")


@dataclass(frozen=True, repr=False)
class TrainingQuestion(Asked):
    """A training under DDP, in processes of this machine."""

    model: str = said(MODEL)
    batch: int = asked(Whole(1), "examples of a worker in a step", 16, metavar="N")
    workers: int = asked(Whole(1, 64), "processes", 2, metavar="P")
    momentum: float = asked(Number(0, maximum=1), "momentum of SGD", 0.9)
    held_out: float = asked(Number(0, True, 0.9), "share of the data that is not trained on", 0.2)
    wait: float = said(WAIT_FOR_EACH)


@dataclass(frozen=True, repr=False)
class RatesQuestion(TrainingQuestion):
    """A training of so many epochs, and the learning rate of each."""

    epochs: int = asked(Whole(1, 10_000), "epochs of the training", 10, metavar="N")
    learning_rate: float = asked(Number(0, True), "learning rate of SGD", 0.05)
    decay: Sequence[int] | None = asked(
        Listed(Whole(1)), "epochs from which the learning rate is a tenth", metavar="EPOCH,..."
    )
    rate_warm_up: int | None = asked(
        Whole(1), "first epochs in which the learning rate rises linearly to its full height", metavar="N"
    )


@dataclass(frozen=True, repr=False)
class RuleQuestion(Asked):
    """When Accordion's rule takes a phase for critical."""

    eta: float = asked(
        Number(0, True), "accordion: share by which a norm must change for a critical phase", 0.5, metavar="SHARE"
    )
    interval: int = asked(Whole(1), "accordion: epochs between looks at norms", 10, metavar="N")
    warm_up: int | None = asked(
        Whole(0), "accordion: first epochs that are critical in any case", otherwise="twice the interval", metavar="N"
    )


@dataclass(frozen=True, repr=False)
class ProfileQuestion(RatesQuestion):
    """What modes would spoil in a training with plain gradients."""

    ranks: Sequence[int] | None = asked(
        Listed(Whole(1, 999_999)), "of PowerSGD, whose errors are tails of singular values",
        otherwise="1,2,4,8, unless compressors are given", metavar="R,R,...",
    )  # fmt: skip
    compressors: Sequence[str] | None = asked(
        Listed(Text()), "modes whose errors are measured by sending: topk:0.01,powersgd:4", metavar="MODE,..."
    )
    samples: int = asked(Whole(1), "steps of an epoch at which modes are looked at", 4, metavar="N")
    output: str = said(output("the trace to write, .npz"))


@dataclass(frozen=True, repr=False)
class RunQuestion(RuleQuestion, TrainingQuestion):
    """A training with a plan's modes, beside others."""

    plan: str = said(PLAN)
    beside: Sequence[str] = asked(
        Listed(Text()),
        "constant, plain, none; accordion, reversed and accordion-batches, which decide in the run; hand-written, "
        "hand-written-reversed; with --trace corrected, the plan corrected in the run, and the other rules of "
        "`solve ranks --method`",
        ("constant",), metavar="NAME,...",
    )  # fmt: skip
    trace: str | None = asked(Text(), "what the plan was made from, for rules that go by it", metavar="FILE")
    large_batch: int | None = asked(
        Whole(2), "accordion-batches: examples of a worker in a step outside of critical phases; in them --batch",
        metavar="N",
    )  # fmt: skip
    first_epochs: int = asked(Whole(0), "hand-written: first epochs in the mode that sends most", 20, metavar="N")
    decay_epochs: int = asked(Whole(0), "hand-written: the same after each decay", 10, metavar="N")
    tolerance: float = asked(
        Number(0), "corrected: share by which an epoch's errors may be off before what is left is planned anew", 0.25,
        metavar="SHARE",
    )  # fmt: skip
    looks: int = asked(
        Whole(1), "corrected: steps of an epoch at which errors are measured, which sends a plain gradient each", 1,
        metavar="N",
    )  # fmt: skip
    bandwidth: float | None = asked(
        Bandwidth(), "of an emulated wire out of a worker, on which sends take what they would on a ring", metavar="B",
        group="network",
    )  # fmt: skip
    latency: float | None = asked(
        Seconds(), "latency of a step on the emulated wire", otherwise=LATENCY_S, metavar="T", group="network"
    )
    plot: str | None = said(plot("what controllers saw and did: norms, critical phases, modes"))


@dataclass(frozen=True, repr=False)
class RegimesQuestion(RuleQuestion, RatesQuestion):
    """Which epochs of a training are critical by norms of gradients, and by eigenvalues of the Hessian."""

    interval: int = asked(Whole(1), "epochs between looks at norms and eigenvalues", 1, metavar="N")
    share: float = asked(
        Number(0, True, 1), "of a gradient's entries, the largest, that are compared with the next one's", 0.1,
        metavar="SHARE",
    )  # fmt: skip
    iterations: int = asked(Whole(1), "the most iterations for an eigenvalue", 30, metavar="N")
    examples: int = asked(Whole(1), "of the data, whose loss the Hessian is of", 256, metavar="N")
