"""What is asked of XXX."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from typing import Any
from gapless.fields import Choice, Number, Object, Text, Whole
from gapless.system import lazy
from gapless.question import Asked, asked

if TYPE_CHECKING:
    from dataclasses import dataclass
    from pathlib import Path
    from typing import Any
    from gapless.profiles.devices import Device
    from gapless.profiles.heads.profile import HeadProfile

__all__ = ["Question"]

# CONSTANTS


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """The question in what people type: `profile` is a file, `synthetic:layers=32,heads=32`, or the profile itself.

    `distance`: `auto` takes `loss` where the profile has it for the question, else `output`. `others`: as in `Problem`.
    Raises `InputError` that names the argument."""

    profile: str | Path | HeadProfile = asked(
        Object(("gapless.profiles.heads.profile.HeadProfile",)),
        "small-lm, what `gapless profile heads` writes, or synthetic:layers=32,heads=32",
        is_required=True,
        metavar="NAME|FILE",
        names=lazy("gapless.profiles.heads.named:head_profile_names"),
    )
    _: KW_ONLY
    kv_saving: float = asked(
        Number(0, maximum=0.999),
        "share of the cache of keys and values that is saved, such as 0.214",
        is_required=True,
        metavar="S",
    )
    distance: str = asked(
        Choice(("auto", "loss", "output", "scores")),
        "what sharing is charged: loss, as measured by layer and count; output; scores; auto is loss where it is measured, else output",
        default="auto",
    )  # PROBLEM DEFAULT AUTO
    method: Any = asked(
        Choice(METHODS), f"what decides: {', '.join(METHODS)}", default="exact", metavar="NAME"
    )  # PROBLEM DEFAULT None
    context: Any = asked(
        Whole(1), "tokens that are cached", default=2048, metavar="N", group="decode step"
    )  # PROBLEM DEFAULT None
    batch: Any = asked(
        Whole(1, 10**6), "sequences at once", default=1, metavar="N", group="decode step"
    )  # PROBLEM DEFAULT None
    element_bytes: Any = asked(
        Whole(1, 8), "bytes of a number in the cache and the weights", default=2, metavar="N", group="decode step"
    )  # PROBLEM DEFAULT None
    device: str | Device = asked(
        Text(),
        "device on which a decode step is timed",
        default="a100",
        metavar="NAME",
        names=_DEVICES,
        group="decode step",
    )  # PROBLEM DEFAULT DEVICE
    swaps: Any = asked(
        Whole(0, 10**6), "how many swaps of heads are tried on the true loss", default=0, metavar="N", group="swaps"
    )  # PROBLEM DEFAULT None
    model: str | None = asked(
        Text(),
        "hf:tiny-llama, hf:tiny-llama-gqa, hf:tiny-gpt2, or the folder of a saved model",
        is_required=True,
        metavar="NAME|FOLDER",
        extra="hf",
    )
    calibration: str | None = asked(Text(), "the text on which swaps are measured", metavar="FILE", group="swaps")
