"""Executing a plan: a training step that computes, recomputes and frees as its schedule says, or one from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gapless.errors import DifferenceError, InputError
from gapless.io.record import Record
from gapless.result import load as load_result
from gapless.torch.capture.graph import capture
from gapless.torch.capture.model_state import ModelWatch, check_plain, loss_of, refuse_autocast
from gapless.torch.capture.program import CapturedStep, InputShape
from gapless.torch.joint_graph import TOLERANCE
from gapless.torch.kernels.norms import check_invertible
from gapless.torch.library import Loss, Module, Tensor, named_tensors, say, torch, tree_flatten
from gapless.torch.run.code import Program
from gapless.torch.run.difference import Difference, compared
from gapless.torch.run.step_plan import CAPTURE, StepPlan, example_arguments, planned

__all__ = ["Step", "load_step", "run"]


class Step:
    """One training step of a model: a call computes the loss, returns it, and leaves gradients in `.grad`.

    As `loss.backward()` does, a call adds to gradients that are there. Buffers are updated once. Arguments are those
    that the step was captured with: the model's inputs, then the targets.

    `close`: how many operators run in an implementation that is only close to eager's, by kind; none by default.
    `difference`: how far the first call was from eager's step, None before it and where they are not compared.

    Raises `InputError` for a model that isn't the captured one; a call, for arguments of other shapes.
    """

    def __init__(
        self, plan: StepPlan, model: Module, tolerance: float | None = TOLERANCE, report: Callable[[str], None] = say
    ) -> None:
        if tolerance is not None and not tolerance >= 0:
            raise InputError(f"tolerance must be >= 0, or None to compare nothing, got {tolerance}")
        check_plain(model)
        self.plan, self._model = plan, model
        self._captured, self._tensors = plan.step, named_tensors(model)
        _check_model(plan.step, self._tensors)
        self._program = Program(plan, self._tensors["parameter"])
        self.close, self._inverted = self._program.close(), self._program.inverted()
        self.difference: Difference | None = None
        self._tolerance, self._report = tolerance, report
        self._state = plan.step.state
        self._watch: ModelWatch | None = None

    def __call__(self, *arguments: object, **named: object) -> Tensor:
        """Run the step; the first call runs eager's as well, and compares.

        Raises `InputError` for other shapes than the captured ones, under autocast, where the model is no longer as it
        was captured, or where a plan computes a batch norm's gradient from its output and its weight has come near
        zero. Raises `DifferenceError` where the first call is further from eager's than the tolerance; gradients,
        buffers and random state are then as before it.
        """
        leaves = self._leaves(arguments, named)
        self._check_unchanged()
        if self._tolerance is None:
            return self._run(leaves)
        first = compared(self._model, lambda: self._run(leaves), lambda: self._eager(leaves))
        self.difference = first.difference
        title = f"first step of {self._captured.graph.name!r}"
        if first.difference is None:
            self._report(f"{title}: not compared with eager's, for which there is not enough memory")
        elif first.difference.relative > self._tolerance:
            rule = f"{title}: {first.difference}; the tolerance is {self._tolerance:g}"
            raise DifferenceError(f"{rule}; train without the plan, or pass a tolerance that allows for it")
        else:
            self._report(f"{title}: {first.difference}")
        first.keep()
        self._tolerance = None
        self._state = self._state.after_forward(self._model, self._captured.objective)
        return first.loss

    def _run(self, leaves: list[Tensor]) -> Tensor:
        with torch.no_grad():
            for gamma, beta in self._inverted:
                check_invertible(gamma, *(self._tensors["parameter"][name] for name in (gamma, beta)))
            return self._program(self._placed(leaves))

    def _eager(self, leaves: list[Tensor]) -> Tensor:
        """Loss and gradients as the model itself finds them."""
        loss = loss_of(self._model, self._captured.objective, leaves, self._captured.structure)
        loss.backward()
        return loss.detach()

    def _check_unchanged(self) -> None:
        """Raise `InputError` where tensors of the model have been replaced, or it is in another state."""
        refuse_autocast("step")
        if self._watch is not None and self._watch.is_unchanged():
            return
        objective = self._captured.objective
        self._state.check(self._model, objective)
        for kind, now in named_tensors(self._model).items():
            for name, tensor in now.items():
                if self._tensors[kind].get(name) is not tensor:
                    raise InputError(f"step: {kind} {name!r} was replaced since the step was made; make the step anew")
        self._watch = ModelWatch(self._model, objective, self._state.advanced)

    def _leaves(self, arguments: tuple[object, ...], named: dict[str, object]) -> list[Tensor]:
        count = len(arguments) - self._captured.target_count
        leaves, structure = tree_flatten((arguments[:count], named, arguments[count:]))
        expected = self._captured.inputs
        if structure != self._captured.structure:
            rule = f"step: must get {len(expected)} tensors in the structure that was captured"
            raise InputError(f"{rule}, inputs first, then targets, got {len(leaves)} or in another order or names")
        for number, (leaf, shape) in enumerate(zip(leaves, expected, strict=True)):
            if not isinstance(leaf, torch.Tensor):
                raise InputError(f"step: argument {number} must be a tensor, got {type(leaf).__name__}")
            if leaf.requires_grad:
                raise InputError(f"step: tensor {number} requires a gradient, which only parameters get; detach it")
            wanted, got = _compared(shape, InputShape.of(leaf))
            if got != wanted:
                hint = "pad or cut the batch to it, or capture and plan again for this one"
                raise InputError(f"step: tensor {number} must have {wanted}, as it was captured, got {got}; {hint}")
        return list(leaves)

    def _placed(self, leaves: list[Tensor]) -> list[Tensor]:
        """The tensors of the placeholders, then the constants."""
        placed = []
        for node, role in self._captured.roles.items():
            if role.kind == "input":
                placed.append(leaves[role.index])
            elif role.kind == "tangent":
                fake = self._captured.storages.fake[node]
                placed.append(torch.ones(tuple(fake.shape), dtype=fake.dtype, device=fake.device))
            else:
                placed.append(self._tensors[role.kind][role.name])
        return [*placed, *self._captured.constants.values()]


def run(
    plan: StepPlan, model: Module, *, tolerance: float | None = TOLERANCE, report: Callable[[str], None] = say
) -> Step:
    """The plan as a callable training step of the model. Raises `InputError` if it was made for another model.

    The first call also runs eager's step, on the same inputs and random state, and compares loss, gradients and
    buffers: it takes the time and memory of both. `report` is called with a line that says "bit-equal" or how far they
    are; beyond `tolerance`, relative to a tensor's norm, the call raises `DifferenceError`. None compares nothing.
    """
    return Step(plan, model, tolerance, report)


def _check_model(step: CapturedStep, tensors: dict[str, dict[str, Tensor]]) -> None:
    for node, role in step.roles.items():
        if role.kind not in tensors:
            continue
        fake, value = step.storages.fake[node], tensors[role.kind].get(role.name)
        if value is None:
            raise InputError(f"run: the model has no {role.kind} {role.name!r}, which the plan was made with")
        wanted, got = _compared(InputShape.of(fake), InputShape.of(value))
        if got != wanted:
            raise InputError(f"run: {role.kind} {role.name!r} must have {wanted}, got {got}; capture this model")


def _compared(wanted: InputShape, got: InputShape) -> tuple[str, str]:
    """What a tensor must be and what it is, equal where it fits; with strides where all else is equal."""
    texts = [f"shape {list(given.shape)}, {given.dtype} on {given.device}" for given in (wanted, got)]
    if texts[0] == texts[1]:
        texts = [f"{text}, strides {given.layout}" for text, given in zip(texts, (wanted, got), strict=True)]
    return texts[0], texts[1]


def load_step(
    path: str | Path,
    model: Module,
    loss: Loss | None = None,
    *,
    tolerance: float | None = TOLERANCE,
    report: Callable[[str], None] = say,
) -> Step:
    """The step of a plan that `StepPlan.save` or `gapless run` wrote, for the model and loss that it was made for.

    The model is captured again, in the shapes that the file says; nothing in the file is run. Raises `InputError`, one
    line, where the file's plan doesn't fit the model. `tolerance`, `report`: as for `run`.
    """
    result = load_result(path)
    if CAPTURE not in result.details:
        rule = f"{path}: must be a plan with the record of its capture, as `save` of a planned step writes it"
        raise InputError(f"{rule}; for other plans of a step there is gapless.torch.run.load")
    record = Record(result.details[CAPTURE], f"{path}: details: {CAPTURE}")
    captured, now = (version.split(".")[:2] for version in (record.text("pytorch"), str(torch.__version__)))
    if captured != now:
        rule = f"must be of the PyTorch that runs it, {'.'.join(now)}, got one of {'.'.join(captured)}"
        raise InputError(f"{path}: the plan {rule}, whose operators may differ; capture and plan again")
    inputs, targets = example_arguments(record)
    if bool(model.training) != record.boolean("is_training"):
        wanted = "training" if record.boolean("is_training") else "evaluation"
        raise InputError(f"{path}: is for {wanted} mode; set the model to it with .train() or .eval()")
    step = capture(model, inputs, loss, targets=targets, name=record.text("name"), close=record.texts("close"))
    try:
        return run(planned(step, result), model, tolerance=tolerance, report=report)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
