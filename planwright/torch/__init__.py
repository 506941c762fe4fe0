"""Plans of training steps, executed by PyTorch: `plan` a captured step within a budget, `run` it on the model.

Needs the extra `torch`; nothing else in planwright imports this package.
"""

from planwright.torch.plan import TorchPlan, keep_all_peak_bytes, load, plan
from planwright.torch.step import Step, run

__all__ = ["Step", "TorchPlan", "keep_all_peak_bytes", "load", "plan", "run"]
