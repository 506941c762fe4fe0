"""The joint graph of a training step: forward, loss and backward as one functional graph of ATen ops.

The one module that talks to PyTorch's private capture API (`aot_export_joint_with_descriptors`); proven with PyTorch
2.13. What it relies on is held in a contract test, which names what a new PyTorch has changed. Needs the extra
`torch`.
"""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.torch.joint_graph import JointGraph, Role
from gapless.torch.library import torch

__all__ = ["trace_joint"]

_CHANGED = "PyTorch's capture API has changed (PyTorch {version}; gapless was made for 2.13): {what}"

_INSIDE = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), contextlib.__file__, "<")
"""How the paths of code begin that no user has written: PyTorch's, ours, the standard library's, generated."""


def trace_joint(step: Any, arguments: tuple[Any, ...]) -> JointGraph:
    """Trace a module that returns a scalar loss, with its backward pass, without running it on real data.

    Raises `InputError`, one line, where the model can't be traced as one graph or PyTorch is not as expected.
    """
    try:
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    except ImportError as error:
        raise _changed(str(error)) from None
    try:
        with contextlib.ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tracing speaks of PyTorch's own insides
            joint = aot_export_joint_with_descriptors(stack, step, arguments)
    except Exception as error:  # whatever a model does wrong comes out of the tracer as whatever it is
        raise InputError(f"capture: the model can't be captured as one graph: {_reason(error)}") from error
    return _read(joint.graph_module)


def _read(module: Any) -> JointGraph:
    """The roles of placeholders and outputs, from the descriptors on them."""
    inputs = {}
    outputs: list[tuple[Any, Role]] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs[node] = _input_role(node.meta.get("desc"))
        if node.op == "output":
            descriptors = node.meta.get("desc")
            if descriptors is None or len(descriptors) != len(node.args[0]):
                raise _changed("the outputs of the joint graph have no descriptors")
            for value, descriptor in zip(node.args[0], descriptors, strict=True):
                role = None if value is None else _output_role(descriptor)
                if role is not None:
                    outputs.append((value, role))
    if sum(role.kind == "loss" for _, role in outputs) != 1:
        raise InputError("capture: the loss must be one scalar tensor that depends on a parameter")
    return JointGraph(module, inputs, tuple(outputs))


def _input_role(descriptor: Any) -> Role:
    kind = type(descriptor).__name__
    if kind == "ParamAOTInput":
        return Role("parameter", descriptor.target)
    if kind == "BufferAOTInput":
        return Role("buffer", descriptor.target)
    if kind == "PlainAOTInput":
        return Role("input", index=descriptor.idx)
    if kind == "TangentAOTInput":
        return Role("tangent")
    raise _changed(f"an input of the joint graph is described as {kind}")


def _output_role(descriptor: Any) -> Role | None:
    kind = type(descriptor).__name__
    if kind == "PlainAOTOutput":
        return Role("loss")
    if kind == "InputMutationAOTOutput":
        mutated = _input_role(descriptor.mutated_input)
        if mutated.kind != "buffer":
            raise InputError(f"capture: the model changes its {mutated.kind} {mutated.name or mutated.index} in place")
        return mutated
    if kind == "GradAOTOutput":
        of = _input_role(descriptor.grad_of)
        return Role("gradient", of.name) if of.kind == "parameter" else None
    raise _changed(f"an output of the joint graph is described as {kind}")


def _changed(what: str) -> InputError:
    return InputError(_CHANGED.format(version=torch.__version__, what=what))


def _reason(error: Exception) -> str:
    """The first line of what the tracer says, and the line of the model where it says so."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    place = _place(error)
    return f"{first} ({place})" if place else first


def _place(error: Exception) -> str:
    """The innermost line of code that isn't PyTorch's or ours."""
    place, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith(_INSIDE):
            place = f"{Path(path).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
