"""What is asked of sharding: an instance, whose nodes each take one of their choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.profiles.shardings.autoparallel import SHIPPED
from gapless.question import Asked, asked
from gapless.question.fields import Object

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.encodings.sharding.instance import Instance

__all__ = ["Question"]


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """A choice for each node of an instance, such that all of them together cost least within the memory.

    `instance`: a file of the ASPLOS 2025 contest, the words of a drawn one, the name of a shipped one, or the instance.
    """

    instance: str | Path | Instance = asked(
        Object(("gapless.encodings.sharding.instance.Instance",)),
        "an instance as the ASPLOS 2025 contest has it (.json, .json.gz), drawn:nodes=200,seed=1, or "
        f"{' or '.join(SHIPPED)}",
        is_required=True,
        metavar="FILE",
    )
