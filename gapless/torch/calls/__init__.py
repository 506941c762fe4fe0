"""Models whose calls follow plans: `planned(model, budget)`, `planned_blocks(model, blocks, budget)`."""

from gapless.torch.calls.blocks import PlannedBlocks, planned_blocks
from gapless.torch.calls.model import Planned, planned, unplanned
from gapless.torch.calls.padding import Padding

__all__ = ["Padding", "Planned", "PlannedBlocks", "planned", "planned_blocks", "unplanned"]
