"""Plans of training steps, executed by PyTorch: `plan` a captured step within a budget, `run` it on the model."""

from gapless.torch.run.execution import Execution, run_and_compare
from gapless.torch.run.step import Step, load_step, run
from gapless.torch.run.step_plan import StepPlan, load, plan, reason_without_plan
from gapless.torch.run.workload import Workload, load_workload

__all__ = [
    "Execution",
    "Step",
    "StepPlan",
    "Workload",
    "load",
    "load_step",
    "load_workload",
    "plan",
    "reason_without_plan",
    "run",
    "run_and_compare",
]
