"""Plans of training steps, executed by PyTorch: `plan` a captured step within a budget, `run` it on the model."""

from gapless.torch.run.planning import TorchPlan, keep_all_peak_bytes, load, plan
from gapless.torch.run.step import Step, run

__all__ = ["Step", "TorchPlan", "keep_all_peak_bytes", "load", "plan", "run"]
