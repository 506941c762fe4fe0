"""The joint graph of a training step: forward, loss and backward as one functional graph of ATen ops.

The one module that talks to PyTorch's private capture API (`aot_export_joint_with_descriptors`) and its tensors without
data; proven with PyTorch 2.13. What it relies on is held in a contract test, which names what a new PyTorch has
changed. Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.torch.capture.layouts import entries, real_layouts
from gapless.torch.joint_graph import JointGraph, RefusedOp, Role
from gapless.torch.library import Argument, Module, Node, Tensor, torch

if TYPE_CHECKING:
    from torch._functorch._aot_autograd.descriptors import AOTInput, AOTOutput
    from torch._ops import OpOverload
    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["trace_joint"]


_CHANGED = "PyTorch's capture API has changed (PyTorch {version}; gapless was made for 2.13): {what}"

_TRACED_IN_PYTHON = frozenset({
    "istft", "one_hot", "tensor_split",  # otherwise they look into data
    "cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm",  # write running statistics unseen
    "dropout", "empty",  # rewritten to eager's; no arithmetic
})  # fmt: skip
"""Of the ops that PyTorch implements in Python for tracing, those that are left to it, and why."""

_INSIDE = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), contextlib.__file__, "<")
"""How the paths of code begin that no user has written: PyTorch's, ours, the standard library's, generated."""

_INTO_DATA = ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode")
"""What the tracer raises where a model asks for the value of a tensor, or a shape depends on one."""


_WITHOUT_DATA = (("_is_compiling_flag",), ("_is_compiling_flag", "_is_exporting_flag"))
"""Flags of `torch.compiler` under which a model that looks into its data is traced once more, in this order."""


def trace_joint(step: Module, arguments: tuple[Tensor, ...]) -> JointGraph:
    """Trace a module that returns tensors, such as its loss, with its backward pass, without running it on real data.

    Where the model looks into its data, it is traced once more with the values that depend on no argument. If it looks
    into others, it is traced with `torch.compiler.is_compiling()` true, and then `is_exporting()` too, by which models
    of `transformers` know that they must not. Raises `InputError`, one line, where the model can't be traced
    as one graph or PyTorch is not as expected.
    """
    try:
        return _traced(step, arguments)
    except InputError:
        raise
    except Exception as error:  # whatever a model does wrong comes out of the tracer as whatever it is
        first = error
    if _looks_into_data(first):
        with contextlib.suppress(Exception), known_values():
            return _traced(step, arguments)
    for flags in _WITHOUT_DATA if _looks_into_data(first) else ():
        known = _attributes(torch.compiler, **dict.fromkeys(flags, True))
        with contextlib.suppress(Exception), known:  # the first error says what the model does in training
            return _traced(step, arguments)
    raise InputError(f"capture: the model can't be captured as one graph: {_reason(first)}") from first


def _traced(step: Module, arguments: tuple[Tensor, ...]) -> JointGraph:
    try:
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    except ImportError as error:
        raise _changed(str(error)) from None
    with (
        contextlib.ExitStack() as stack,
        warnings.catch_warnings(),
        _quiet(),
        _as_eager(),
        real_layouts(),
        _put_back(step),
        _attributes(torch._functorch.config, backward_pass_autocast="off"),  # noqa: SLF001  # loops leave it first
    ):
        warnings.simplefilter("ignore")  # tracing speaks of PyTorch's own insides
        return _read(aot_export_joint_with_descriptors(stack, step, arguments).graph_module)


@contextlib.contextmanager
def _put_back(step: Module) -> Iterator[None]:
    """Give modules their tensors back: to one under several names PyTorch gives back what it traced with."""
    tables = [table for module in step.modules() for table in (module._parameters, module._buffers)]  # noqa: SLF001
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, own in zip(tables, before, strict=True):
            table.update(own)


def _looks_into_data(error: Exception) -> bool:
    return type(error).__name__ in _INTO_DATA


def _quiet() -> contextlib.AbstractContextManager[None]:
    """Without what PyTorch logs of an operator that it can't trace, beside raising it."""
    return _attributes(logging.getLogger("torch._subclasses.fake_tensor"), disabled=True)


@contextlib.contextmanager
def _attributes(owner: object, **values: object) -> Iterator[None]:
    """Let attributes of an object have other values."""
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextlib.contextmanager
def _as_eager() -> Iterator[None]:
    """Trace the ops that eager runs: for tracing, PyTorch has other arithmetic for some, which takes more memory."""
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)  # noqa: SLF001
    hidden = [(op, {key: op.py_kernels.pop(key) for key in keys if key in op.py_kernels}) for op in _ops()]
    for op, _ in hidden:
        op._dispatch_cache.clear()  # noqa: SLF001
    try:
        yield
    finally:
        for op, kernels in hidden:
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()  # noqa: SLF001


@functools.cache
def _ops() -> tuple[OpOverload, ...]:
    """The ATen ops that are to be traced as eager runs them."""
    names = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}  # noqa: SLF001
    parted = [name.partition(".") for name in sorted(names)]
    return tuple(
        getattr(getattr(torch.ops.aten, packet), overload or "default")
        for packet, _, overload in parted
        if packet not in _TRACED_IN_PYTHON
    )


def _read(module: torch.fx.GraphModule) -> JointGraph:
    """The roles of placeholders and outputs, from the descriptors on them."""
    inputs = {}
    outputs: list[tuple[Node, Role]] = []
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
                    outputs.append((_uncopied(value) if role.kind == "buffer" else value, role))
        if node.op == "get_attr" and isinstance(getattr(module, node.target), torch.Generator):
            rule = "capture: the model draws from a torch.Generator of its own, whose state a plan doesn't keep"
            raise InputError(f"{rule}; draw without generator=, or before the call, and pass what is drawn")
    return JointGraph(module, inputs, tuple(outputs))


def _uncopied(value: Node) -> Node:
    """What a buffer's new value is a copy of, if it is one: the step itself copies it."""
    if value.target is not aten.copy.default:
        return value
    old, new = (node.meta["val"] for node in value.args[:2])
    return value.args[1] if (old.shape, old.dtype) == (new.shape, new.dtype) else value


def _input_role(descriptor: AOTInput) -> Role:
    kind = type(descriptor).__name__
    if kind == "ParamAOTInput":
        return Role("parameter", descriptor.target)
    if kind == "BufferAOTInput":
        return Role("buffer", descriptor.target)
    if kind == "PlainAOTInput":
        return Role("input", index=descriptor.idx)
    if kind == "TangentAOTInput":
        return Role("tangent", index=descriptor.output.idx)
    if kind.endswith("TokenAOTInput"):
        rule = "capture: an op of the model checks its result or prints, which a plan can't do"
        hint = "take the form that doesn't, such as torch.linalg.inv_ex for torch.linalg.inv"
        raise RefusedOp(f"{rule}; {hint}", "token")
    raise _changed(f"an input of the joint graph is described as {kind}")


def _output_role(descriptor: AOTOutput) -> Role | None:
    kind = type(descriptor).__name__
    if kind == "PlainAOTOutput":
        return Role("output", index=descriptor.idx)
    if kind == "InputMutationAOTOutput":
        mutated = _input_role(descriptor.mutated_input)
        if mutated.kind != "buffer":
            raise InputError(f"capture: the model changes its {mutated.kind} {mutated.name or mutated.index} in place")
        return mutated
    if kind == "GradAOTOutput":
        of = _input_role(descriptor.grad_of)
        return Role("gradient", of.name) if of.kind == "parameter" else Role("input gradient", index=of.index)
    raise _changed(f"an output of the joint graph is described as {kind}")


def _changed(what: str) -> InputError:
    return InputError(_CHANGED.format(version=torch.__version__, what=what))


def _reason(error: Exception) -> str:
    """The first line of what the tracer says, the line of the model where it says so, and what to do about it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    if _looks_into_data(error):
        first = f"it looks into its data, by {first}"
        hint = "compute without it (torch.where, sizes that don't depend on values), do it before the step"
        hint += ", or put it into a module of its own, which then runs as an eager island"
    elif first.startswith("When use_reentrant=True"):
        first, hint = (
            "torch.utils.checkpoint has use_reentrant=True, which starts a backward pass",
            "pass use_reentrant=False",
        )
    elif "convert all Tensors to FakeTensors" in first:
        first = "it or its loss holds a tensor that is no parameter, buffer or argument"
        hint = "register it as a buffer, or pass it among inputs or targets"
    else:
        hint = ""
    place = _place(error)
    return first + (f" ({place})" if place else "") + (f"; {hint}" if hint else "")


def _place(error: Exception) -> str:
    """The innermost line of code that isn't PyTorch's or ours."""
    place, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith(_INSIDE):
            place = f"{Path(path).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


aten = torch.ops.aten
_COUNTS = (aten.arange.default, aten.arange.start, aten.arange.start_step)
_MOST_ENTRIES = 2**16
"""What is larger is traced without its values, as PyTorch does with all but scalars."""


@contextlib.contextmanager
def known_values() -> Iterator[None]:
    """Let tensors that are counted, and what is computed of them alone, have their values while they are traced."""
    from torch._subclasses import fake_impls, fake_tensor

    counted = dict.fromkeys(_COUNTS, _counted)
    with (
        _attributes(fake_tensor, CONSTANT_NUMEL_LIMIT=_MOST_ENTRIES),
        entries(fake_impls.op_implementations_dict, counted, fake_tensor.FakeTensorMode.cache_clear),
    ):
        yield


def _counted(mode: FakeTensorMode, op: OpOverload, *arguments: Argument, **options: Argument) -> Tensor:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), torch._C._DisableTorchDispatch():  # noqa: SLF001
        real = op(*arguments, **options)
    if real.numel() > _MOST_ENTRIES:
        return mode.from_tensor(real)
    return mode.fake_tensor_converter.from_real_tensor(mode, real, make_constant=True)
