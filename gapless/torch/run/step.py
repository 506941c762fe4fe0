"""Executing a plan: a training step that computes, recomputes and frees as the plan's schedule says."""

from __future__ import annotations

from typing import Any

from gapless.errors import InputError
from gapless.torch.capture.program import CapturedStep
from gapless.torch.kernels.norms import check_invertible
from gapless.torch.library import torch
from gapless.torch.run.instructions import Compiler, Run
from gapless.torch.run.step_plan import StepPlan

__all__ = ["Step", "run"]


class Step:
    """One training step of a model: a call computes the loss, returns it, and leaves gradients in `.grad`.

    As `loss.backward()` does, a call adds to gradients that are there. Buffers are updated once. Arguments are those
    that the step was captured with: the model's inputs, then the targets. Hooks of modules and tensors don't run.

    `close`: how many operators run in an implementation that is only close to eager's, by kind; none by default.
    """

    def __init__(self, plan: StepPlan, model: Any) -> None:
        self.plan, self._model = plan, model
        self._captured = plan.step
        self._parameters = dict(model.named_parameters(remove_duplicate=False))
        self._buffers = dict(model.named_buffers(remove_duplicate=False))
        _check_model(plan.step, self._parameters, self._buffers)
        compiler = Compiler(plan, self._parameters)
        self._instructions, self._updates = compiler.instructions(), compiler.updates()
        self.close, self._inverted = compiler.close(), compiler.inverted()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the step; raises `InputError` for other shapes than the captured ones, or under autocast, or where a plan
        computes a batch norm's gradient from its output and its weight has come near zero."""
        leaves = self._leaves(arguments, named)
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise InputError("step: must run outside of torch.autocast, which has no support; cast the model")
        if bool(self._model.training) != self._captured.is_training:
            mode = "training" if self._captured.is_training else "evaluation"
            raise InputError(f"step: was captured in {mode} mode; set the model back with .train() or .eval()")
        with torch.no_grad():
            for gamma, beta in self._inverted:
                check_invertible(gamma, self._parameters[gamma], self._parameters[beta])
            state = Run(self._environment(leaves))
            for instruction in self._instructions:
                instruction(state)
            for name, read in self._updates:
                self._buffers[name].copy_(read(state.there))
        return state.loss

    def _leaves(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        count = len(arguments) - self._captured.target_count
        tree = torch.utils._pytree  # noqa: SLF001
        leaves, structure = tree.tree_flatten((arguments[:count], named, arguments[count:]))
        expected = self._captured.inputs
        if structure != self._captured.structure:
            raise InputError(f"step: must get {len(expected)} tensors in the structure that was captured, got others")
        for number, (leaf, shape) in enumerate(zip(leaves, expected, strict=True)):
            wanted, got = _described(shape), _described(leaf) if isinstance(leaf, torch.Tensor) else type(leaf).__name__
            if got != wanted:
                raise InputError(f"step: tensor {number} must have {wanted}, as it was captured, got {got}")
        return list(leaves)

    def _environment(self, leaves: list[Any]) -> dict[Any, Any]:
        found = dict(self._captured.constants)
        for node, role in self._captured.roles.items():
            if role.kind == "input":
                found[node] = leaves[role.index]
            elif role.kind == "tangent":
                fake = self._captured.storages.fake[node]
                found[node] = torch.ones(tuple(fake.shape), dtype=fake.dtype, device=fake.device)
            else:
                found[node] = (self._parameters if role.kind == "parameter" else self._buffers)[role.name]
        return found


def run(plan: StepPlan, model: Any) -> Step:
    """The plan as a callable training step of the model. Raises `InputError` if it was made for another model."""
    return Step(plan, model)


def _check_model(step: CapturedStep, parameters: dict[str, Any], buffers: dict[str, Any]) -> None:
    for node, role in step.roles.items():
        if role.kind not in ("parameter", "buffer"):
            continue
        fake, value = step.storages.fake[node], (parameters if role.kind == "parameter" else buffers).get(role.name)
        if value is None:
            raise InputError(f"run: the model has no {role.kind} {role.name!r}, which the plan was made with")
        if _described(value) != _described(fake):
            raise InputError(f"run: {role.kind} {role.name!r} must have {_described(fake)}, got {_described(value)}")


def _described(tensor: Any) -> str:
    return f"shape {list(tensor.shape)}, {tensor.dtype} on {tensor.device}"
