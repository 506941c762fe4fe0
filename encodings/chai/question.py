"""What is asked of CHAI: which attention heads share one head's keys, so that a share of the cache is saved; and what
its commands are asked, a profile and a run.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.lazy import lazy
from gapless.profiles.devices import device_names
from gapless.profiles.heads import named
from gapless.question import Asked, asked, said
from gapless.question.command_fields import PLAN, output, plot
from gapless.question.fields import Choice, Field, Listed, Number, Object, Text, Whole
from gapless.question.language_models import DTYPES, MODEL, MODEL_HELP, PLACE, OnSequences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gapless.profiles.devices import Device
    from gapless.profiles.heads.profile import HeadProfile

__all__ = [
    "AUTO", "COPY", "DROPPING", "LOSS", "METHODS", "LatencyQuestion", "ProfileQuestion", "Question",
    "RequestsQuestion", "RunQuestion",
]  # fmt: skip

METHODS = ("exact", "uniform", "elbow", "random")
"""`uniform`: equal counts; `elbow`: the paper's rule, k-means on scores; `random`: equal counts of heads drawn."""
LOSS = "loss"
"""The measure beside `DISTANCES`: rises of the loss, for the profile's own heads of each layer and count."""
AUTO = "auto"
"""`loss` where the profile has it for the question, else `output`."""
COPY = "copy"
"""The task of repeating what was read."""
DROPPING = ("spatten", "dejavu")
"""What drops heads, beside heads that share."""

_STEP, _SWAPS = "decode step", "swaps"


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """Which heads share, of the heads in a profile; and on which device a decode step is timed."""

    profile: str | Path | HeadProfile = asked(
        Object(("gapless.profiles.heads.profile.HeadProfile",)),
        "small-lm, what `gapless profile heads` writes, or synthetic:layers=32,heads=32", is_required=True,
        metavar="NAME|FILE", names=lazy(lambda: named.head_profile_names),
    )  # fmt: skip
    kv_saving: float = asked(
        Number(0, maximum=0.999), "share of the cache of keys and values that is saved, such as 0.214",
        is_required=True, metavar="S",
    )  # fmt: skip
    _: KW_ONLY
    distance: str = asked(
        Choice((AUTO, LOSS, "output", "scores")), "what sharing is charged: loss, as measured by layer and count; "
        "output; scores; auto is loss where it is measured, else output", AUTO,
    )  # fmt: skip
    method: str = asked(Choice(METHODS), f"what decides: {', '.join(METHODS)}", "exact", metavar="NAME")
    query_saving: float = asked(
        Number(0, maximum=0.999), "share of the heads whose queries are saved too, more than with the keys alone where "
        "queries are grouped", 0.0, metavar="S",
    )  # fmt: skip
    context: int = asked(Whole(1), "tokens that are cached", 2048, metavar="N", group=_STEP)
    batch: int = asked(Whole(1, 10**6), "sequences at once", 1, metavar="N", group=_STEP)
    element_bytes: int = asked(
        Whole(1, 8), "bytes of a number in the cache and the weights", 2, metavar="N", group=_STEP
    )
    device: str | Device = asked(
        Object(("gapless.profiles.devices.Device",)), "device on which a decode step is timed", "a100", metavar="NAME",
        names=device_names, group=_STEP,
    )  # fmt: skip
    swaps: int = asked(
        Whole(0, 10**6), "how many swaps of heads are tried on the true loss", 0, metavar="N", group=_SWAPS
    )
    model: str | None = asked(Text(), f"of the profile: {MODEL_HELP}", metavar="NAME|FOLDER", group=_SWAPS, extra="hf")
    calibration: str | None = asked(Text(), "the text on which swaps are measured", metavar="FILE", group=_SWAPS)


_FIRST = Field(
    "first_tokens", Whole(1, 10**6), "tokens of a request that all heads attend to; then heads are clustered", 5,
    metavar="N",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class ProfileQuestion(OnSequences):
    """How far a model's heads are from each other on a text."""

    model: str = said(MODEL)
    calibration: str = asked(Text(), "a text", is_required=True, metavar="FILE")
    loss_sequences: int = asked(
        Whole(0, 10**6),
        "sequences at most on which the rise of the loss is measured, by layer and count of kept keys; 0 for none",
        8, metavar="N",
    )  # fmt: skip
    output: str = said(output("the profile to write"))
    plot: str | None = said(plot("correlations of heads, and errors of clusters, by layer"))


@dataclass(frozen=True, repr=False)
class RunQuestion(OnSequences):
    """A plan in a model, beside the full cache."""

    model: str = said(MODEL)
    plan: str = said(PLAN)
    text: str = asked(
        Text(), "a text: its beginning is the prompt, and the loss is measured on it", is_required=True, metavar="FILE"
    )
    prompt: int = asked(Whole(1, 10**6), "tokens of the prompt", 64, metavar="N")
    new_tokens: int = asked(Whole(2, 10**6), "tokens that are generated", 32, metavar="N")


@dataclass(frozen=True, repr=False)
class RequestsQuestion(OnSequences):
    """A plan's counts in a model, with a membership for each request."""

    model: str = said(MODEL)
    plan: str = said(PLAN)
    text: str = asked(Text(), "a text: its sequences are the requests' prompts", is_required=True, metavar="FILE")
    first_tokens: int = said(_FIRST)
    new_tokens: int = asked(Whole(1, 10**6), "tokens that are generated for each request", 16, metavar="N")
    task: str = asked(
        Choice(("text", COPY)), "what counts: text, its tokens after the first ones; copy, the second half of prompts "
        "that say their first half twice", "text",
    )  # fmt: skip
    beside: Sequence[str] | None = asked(
        Listed(Choice(("values", *DROPPING))), "values, which are shared too; spatten, dejavu, which drop heads",
        metavar="NAME,...",
    )  # fmt: skip
    calibration: str | None = asked(Text(), "the text on which dejavu fits its predictor", metavar="FILE")
    calibration_sequences: int = asked(Whole(1, 10**6), "sequences of it at most", 64, metavar="N")
    plot: str | None = said(plot("how many heads change their cluster, token by token"))
    batch: int = asked(Whole(1, 10**6), "requests that are served at once", 8, metavar="N")


@dataclass(frozen=True, repr=False)
class LatencyQuestion(Asked):
    """A plan's counts in a model: how long the first and the next token take."""

    model: str = said(MODEL)
    plan: str = said(PLAN)
    lengths: Sequence[int] = asked(Listed(Whole(2, 10**6)), "tokens of a prompt", (128, 512, 2048), metavar="N,...")
    batches: Sequence[int] = asked(Listed(Whole(1, 10**6)), "requests that are served at once", (1,), metavar="N,...")
    dtypes: Sequence[str] = asked(
        Listed(Choice(DTYPES)), "numbers of weights and cache", ("float32",), metavar="NAME,..."
    )
    first_tokens: int = said(_FIRST)
    new_tokens: int = asked(Whole(2, 10**6), "tokens that are generated for each request", 9, metavar="N")
    repeats: int = asked(Whole(1, 10**6), "rounds of which the median is taken", 5, metavar="N")
    device: str = said(PLACE)
