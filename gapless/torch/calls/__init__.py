"""Models whose calls follow plans: `planned(model, budget)`."""

from gapless.torch.calls.model import Planned, planned, unplanned

__all__ = ["Planned", "planned", "unplanned"]
