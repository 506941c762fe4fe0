"""MONeT: checkpointing and operator selection for one training step under a memory budget."""

from planwright.encodings.monet.decisions import Decisions
from planwright.encodings.monet.evaluate import Evaluation, evaluate
from planwright.encodings.monet.objective import Objective
from planwright.encodings.monet.problem import Problem

__all__ = ["Decisions", "Evaluation", "Objective", "Problem", "evaluate"]
