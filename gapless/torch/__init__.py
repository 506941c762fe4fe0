"""Plans of training steps, executed by PyTorch: `plan` a captured step within a budget, `run` it on the model.

Needs the extra `torch`; nothing else in gapless imports this package.
"""

from gapless.torch.plan import TorchPlan, keep_all_peak_bytes, load, plan
from gapless.torch.step import Step, run

__all__ = ["Step", "TorchPlan", "keep_all_peak_bytes", "load", "plan", "run"]
