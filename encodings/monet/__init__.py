"""MONeT: checkpointing and operator selection for one training step under a memory budget."""

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import Evaluation, evaluate
from gapless.encodings.monet.objective import Objective
from gapless.encodings.monet.problem import Problem

__all__ = ["Decisions", "Evaluation", "Objective", "Problem", "evaluate"]
