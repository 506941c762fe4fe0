"""Models whose calls follow plans: `planned(model, budget)`."""

from gapless.torch.planned.model import Planned, planned, unplanned

__all__ = ["Planned", "planned", "unplanned"]
