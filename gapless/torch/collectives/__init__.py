"""Plans of collectives between real processes: a function for a training script, and a comparison with the library."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.torch.collectives.executor import PlannedCollective, planned
    from gapless.torch.collectives.steps import Step, steps_of

__all__ = ["PlannedCollective", "Step", "planned", "steps_of"]

__getattr__ = names_of(__name__, {"executor": ("PlannedCollective", "planned"), "steps": ("Step", "steps_of")})
