"""What is asked of a cache: how its keys and values are kept within so many bytes; and what its commands are asked."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.profiles.cache.layout import FORMATS, HEADS, MEASURES
from gapless.profiles.devices import device_names
from gapless.question import Asked, asked, said
from gapless.question.command_fields import PLAN, output
from gapless.question.fields import Choice, Listed, Object, SizeOrShare, Text, Whole
from gapless.question.language_models import MODEL, OnSequences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gapless.profiles.cache.profile import CacheProfile
    from gapless.profiles.devices import Device
    from gapless.question.fields import Share

__all__ = ["KINDS", "METHODS", "UNIFORM", "ProfileQuestion", "Question", "RunQuestion"]

UNIFORM = FORMATS[1:]
METHODS = ("exact", *UNIFORM, "share", "window", "random")
"""`int4` and the like: all keys and values in so many bits; `share`: keys that heads share alone; `window`:
the longest window in all layers that fits; `random`: modes drawn until they fit."""
KINDS = ("formats", "windows", "sharing")

_STEP = "decode step"


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """How keys and values of each layer and head are kept, by what a profile says that each mode spoils."""

    profile: str | Path | CacheProfile = asked(
        Object(("gapless.profiles.cache.profile.CacheProfile",)),
        "what `gapless profile cache` writes, or synthetic:layers=32,heads=32", is_required=True, metavar="FILE",
    )  # fmt: skip
    cache: int | Share = asked(
        SizeOrShare(), "the most bytes of the cache, such as 2GiB, or a share of the full one, such as 0.3x",
        is_required=True, metavar="SIZE",
    )  # fmt: skip
    _: KW_ONLY
    tokens: int = asked(Whole(1), "tokens of each sequence that are cached", 2048, metavar="N", group=_STEP)
    batch: int = asked(Whole(1, 10**6), "sequences at once", 1, metavar="N", group=_STEP)
    element_bytes: int = asked(
        Whole(1, 8), "bytes of a number that is kept in full, and of a weight", 2, metavar="N", group=_STEP
    )
    device: str | Device = asked(
        Object(("gapless.profiles.devices.Device",)), "device on which a decode step is timed", "a100", metavar="NAME",
        names=device_names, group=_STEP,
    )  # fmt: skip
    modes: Sequence[str] = asked(
        Listed(Choice(KINDS)), "what is offered: formats of few bits, windows with sinks, sharing of keys", KINDS,
        metavar="KIND,...",
    )  # fmt: skip
    measure: str = asked(
        Choice(tuple(MEASURES)), "what a mode is charged: the divergence of the next token's distribution, or the rise "
        "of the loss", "divergence",
    )  # fmt: skip
    method: str = asked(Choice(METHODS), f"what decides: {', '.join(METHODS)}", "exact", metavar="NAME")


@dataclass(frozen=True, repr=False)
class ProfileQuestion(OnSequences):
    """What each mode of each layer spoils on a text."""

    model: str = said(MODEL)
    calibration: str = asked(Text(), "a text", is_required=True, metavar="FILE")
    group: int = asked(
        Whole(1, 4096), "tokens of keys, and channels of a token's values, with one scale", 32, metavar="N"
    )
    recent: int = asked(Whole(1, 10**6), "the newest tokens, so many at least, are in full", 32, metavar="N")
    sinks: int = asked(Whole(0, 4096), "first tokens that a window keeps", 4, metavar="N")
    windows: Sequence[int] | None = asked(
        Listed(Whole(1)), "windows that are measured, in tokens", otherwise="a quarter and a half of a sequence",
        metavar="N,...",
    )  # fmt: skip
    heads: str = asked(
        Choice(HEADS), "how a layer's error is divided among its heads: measured, head by head; output, by how much "
        "each changes the layer's output, which is cheaper", HEADS[0],
    )  # fmt: skip
    output: str = said(output("the profile to write"))


@dataclass(frozen=True, repr=False)
class RunQuestion(OnSequences):
    """A plan in a model, beside the full cache."""

    model: str = said(MODEL)
    plan: str = said(PLAN)
    text: str = asked(
        Text(), "a text: prompts are its sequences, and what is spoiled is measured on it", is_required=True,
        metavar="FILE",
    )  # fmt: skip
    calibration: str | None = asked(
        Text(), "the profile's text, to part what modes do together from what another text does", metavar="FILE"
    )
    batch: int = asked(Whole(1, 10**6), "prompts at once", 2, metavar="N")
    prompt: int = asked(Whole(2, 10**6), "tokens of the longest prompt; each other has one less", 64, metavar="N")
    new_tokens: int = asked(Whole(2, 10**6), "tokens that are generated", 32, metavar="N")
