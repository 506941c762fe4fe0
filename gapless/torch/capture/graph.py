"""Training graphs captured from PyTorch models: `capture` makes one of a real module with its loss.

::

    step = capture(model, (images,), cross_entropy, targets=(labels,))   # cross_entropy(model(images), labels)
    step = profile(step, cache="ops.json")
    train = run(plan(step, problem), model)                              # gapless.torch.run; a problem on step.graph
    loss = train(images, labels)                                         # gradients are in `.grad`

`builder.py` says what is a node of the graph. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from gapless.errors import InputError
from gapless.torch.capture.builder import GraphBuilder
from gapless.torch.capture.calls import ModelCall
from gapless.torch.capture.joint import trace_joint
from gapless.torch.capture.model_state import ModelState, ModelStep, titled_modules
from gapless.torch.capture.program import CapturedStep, Operator
from gapless.torch.capture.settings import nothing_drawn, reads_of
from gapless.torch.capture.storages import find_storages
from gapless.torch.islands.operators import begin_sums, running
from gapless.torch.islands.sites import Islands
from gapless.torch.joint_graph import CLOSE
from gapless.torch.library import named_tensors, say, torch
from gapless.torch.rewrite.rewrites import rewrite

__all__ = ["capture", "capture_call"]


def capture(
    model: torch.nn.Module,
    example_inputs: Sequence[object] | Mapping[str, object],
    loss: Callable[..., torch.Tensor] | None = None,
    *,
    targets: Sequence[object] = (),
    name: str = "",
    close: Collection[str] = (),
    islands: Collection[str] = (),
    report: Callable[[str], None] = say,
) -> CapturedStep:
    """The training step of a model: forward, loss and backward, nothing of it run.

    `example_inputs`: arguments of the model, positional or by name; shapes and types are fixed by them. `loss` makes a
    scalar of what the model returns and of `targets`; None where the model returns the loss itself. Whatever changes
    from step to step must be among inputs and targets: other tensors are taken as constants.

    `close`: kinds of implementations to choose among that take less memory or time and are close to eager's, not equal
    bit by bit: "attention" in pieces, "loss" (linear with cross entropy) in chunks, batch "norm" from its output.
    `islands`: names of modules that run by autograd itself, as one operator; those that can't be captured are found,
    and run a few times on these arguments. `report`: is called with a line for each. Raises `InputError`,
    one line, where the model can't be captured as one graph (control flow that depends on data in the model itself).
    """
    step = ModelStep(model, loss, example_inputs, tuple(targets))
    return _captured(model, step, name, close, Islands(model, islands, report))


def capture_call(
    model: torch.nn.Module, call: ModelCall, close: Collection[str] = (), islands: Islands | None = None
) -> CapturedStep:
    """A call of a model and its backward pass, where the loss is computed elsewhere; nothing of it is run.

    What the caller holds counts all along: outputs, their gradients, and gradients of arguments. Raises as `capture`.
    """
    return _captured(model, call, "", close, islands or Islands(model, (), say))


def _captured(
    model: torch.nn.Module, step: ModelStep | ModelCall, name: str, close: Collection[str], islands: Islands
) -> CapturedStep:
    for kind in close:
        if kind not in CLOSE:
            raise InputError(f"close: must be among {', '.join(CLOSE)}, got {kind!r}")
    while True:
        try:
            with islands.known(step.module, step.leaves):
                built = _with_islands(_built(model, step, name, close))
                return replace(built, state=_but(built.state, tuple(islands.titles)))
        except InputError as error:
            if not islands.find(error):
                raise


def _built(model: torch.nn.Module, step: ModelStep | ModelCall, name: str, close: Collection[str]) -> CapturedStep:
    before = ModelState.of(model, step.objective)
    with nothing_drawn(model):
        joint = trace_joint(step.module, tuple(step.leaves))
    state = before.after_forward(model, step.objective)
    if state.advanced:
        _check_advanced(model, step, state, joint.module.code)
    begin_sums(joint)
    joint, rewrites = rewrite(joint, close, named_tensors(step.module)["parameter"])
    parameters = named_tensors(model)["parameter"]
    title = name or type(model).__name__
    return GraphBuilder(joint, find_storages(joint), rewrites, parameters, state, title, tuple(close)).build(step)


def _check_advanced(model: torch.nn.Module, step: ModelStep | ModelCall, state: ModelState, code: str) -> None:
    """Raise `InputError` where what the forward pass changes of its own, such as a counter, has a say in what it does.

    `code`: of the joint graph that was traced first. It is traced once more, with the next numbers.
    """
    modules = dict(titled_modules(model, step.objective))
    with reads_of(modules, step.objective, state.advanced) as seen:
        if trace_joint(step.module, tuple(step.leaves)).module.code != code:
            seen.update(f"{name} of {title}" for title, name in state.advanced)
    if seen:
        rule = f"capture: the forward pass changes {min(seen)} and goes by it, and a plan would keep its first value"
        raise InputError(f"{rule}; make it a buffer that forward computes with, or set it outside of the model")


def _but(state: ModelState, titles: tuple[str, ...]) -> ModelState:
    """The state where attributes of modules that run as they are may change, and of what these hold."""
    modules = [(title, module) for title, module in state.modules.items() if title.endswith(titles)]
    free = {(title, name) for title, module in modules for name in module.attributes}
    return replace(state, advanced=state.advanced | free)


def _with_islands(step: CapturedStep) -> CapturedStep:
    """The step with calls that run its islands."""
    operators = [None if operator is None else _with_calls(operator) for operator in step.operators]
    return replace(step, operators=tuple(operators))


def _with_calls(operator: Operator) -> Operator:
    given = {gradient.value for gradient in operator.gradients if gradient.is_taken}
    taken = frozenset(place for value, place, _ in operator.values if value in given and place is not None)
    runs = [running(call.function, call.arguments, taken) or call.function for call in operator.calls]
    calls = [replace(call, function=run) for call, run in zip(operator.calls, runs, strict=True)]
    return replace(operator, calls=tuple(calls))
