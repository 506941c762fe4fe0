"""MONeT: checkpointing and operator selection for one training step under a memory budget."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.monet.decisions import Decisions
    from gapless.encodings.monet.evaluate import Evaluation
    from gapless.encodings.monet.problem import Objective, Problem

__all__ = ["Decisions", "Evaluation", "Objective", "Problem"]

__getattr__ = names_of(__name__, {
    "decisions": ("Decisions",),
    "evaluate": ("Evaluation",),
    "problem": ("Objective", "Problem"),
})  # fmt: skip
