"""Training a model by a plan of layouts: its parameters as DTensors, and a step whose loss has a backward pass.

::

    step = apply(model, "plan.json", cross_entropy)             # in each process; parameters are cut as planned
    optimizer = AdamW(model.parameters())                       # its state is cut alike
    step(images, labels).backward()                             # the whole batch, or DTensors of it
    optimizer.step()

Needs the extra `torch`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from gapless.errors import InputError
from gapless.profiles.layouts.costs import MeshCosts
from gapless.profiles.layouts.layouts import MeshLayouts
from gapless.profiles.layouts.transitions import Step
from gapless.result import Result
from gapless.result import load as load_result
from gapless.torch.capture.model_state import ModelWatch, refuse_autocast
from gapless.torch.devices import device_of
from gapless.torch.joint_graph import Role
from gapless.torch.library import Loss, Module, Tensor, rank_count, torch, tree_flatten
from gapless.torch.run.workload import Workload
from gapless.torch.sharding.execution.collectives import Exchange
from gapless.torch.sharding.execution.cutting import cut_model, whole_model
from gapless.torch.sharding.execution.local_calls import Place, draws
from gapless.torch.sharding.execution.program import Program, compiled
from gapless.torch.sharding.execution.running import run_instructions
from gapless.torch.sharding.joint import joint_of, model_name
from gapless.torch.sharding.placements import placements_of

__all__ = ["Cost", "ShardedStep", "apply"]

Cost: TypeAlias = Callable[[Step], float]


def apply(
    model: Module,
    plan: str | Path | Result | MeshLayouts,
    loss: Loss | None = None,
    *,
    targets: int = 1,
    mesh: DeviceMesh | None = None,
    cost: Cost | None = None,
) -> ShardedStep:
    """Cut a model's parameters as a plan says, and give the step that trains it; called in every process.

    `plan`: of sharding, of this model; a file, what `solve` gives, or layouts alone. Every process has the same model
    with the same numbers. `loss` makes a scalar of what the model returns and of `targets`, so many last positional
    arguments of a step; None where the model returns it. `mesh`: of the plan's shape, made of all processes unless it
    is given. `cost`: of a step of a change of layouts, by which the least is taken; the plan's, or for layouts alone
    the bytes that it sends.

    Raises `InputError` where there are other processes, or the model has other parameters than the plan.
    """
    layouts, costs = (plan, None) if isinstance(plan, MeshLayouts) else _decided(plan)
    if cost is None and costs is not None:
        cost = costs.step_s
    return ShardedStep(model, layouts, loss, targets if loss is not None else 0, mesh, cost)


def _decided(plan: str | Path | Result) -> tuple[MeshLayouts, MeshCosts | None]:
    decision = (plan if isinstance(plan, Result) else load_result(plan)).decision
    layouts, costs = getattr(decision, "layouts", None), getattr(decision, "costs", None)
    if not isinstance(layouts, MeshLayouts):
        raise InputError("plan: must be one of sharding, of a model on a mesh; solve with a model")
    return layouts, costs if isinstance(costs, MeshCosts) else None


class ShardedStep:
    """A training step by planned layouts: a call gives the loss, whose backward pass leaves gradients in `.grad`.

    Arguments are the model's inputs, then the loss's targets: whole tensors, equal in all processes, or DTensors. The
    first call captures the model, and checks that it is the planned one. `exchange.sent`: what this rank has sent.
    """

    def __init__(
        self, model: Module, layouts: MeshLayouts, loss: Loss | None, targets: int, mesh: DeviceMesh | None,
        cost: Cost | None,
    ) -> None:  # fmt: skip
        self.model, self.layouts, self.loss, self._targets, self._cost = model, layouts, loss, targets, cost
        self.mesh = _mesh(layouts, mesh, next(model.parameters()).device)
        self.exchange = Exchange(self.mesh)
        self.place = Place(layouts.mesh, self.exchange.place)
        self._shapes = cut_model(model, layouts, self.mesh, self.place)
        self.program: Program | None = None
        self._watch: ModelWatch | None = None
        self._called: tuple[object, ...] = ()

    def __call__(self, *arguments: object, **named: object) -> Tensor:
        """The loss, whole on every rank.

        Raises `InputError` where model or arguments aren't those of the plan, and under autocast.
        """
        refuse_autocast("step")
        first = len(arguments) - self._targets
        leaves, structure = tree_flatten((arguments[:first], named, arguments[first:]))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if len(tensors) < len(leaves) or first < 0:
            raise InputError(f"step: takes tensors, {self._targets} of them targets, got {len(leaves)} arguments")
        called = structure, *((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        if self.program is None:
            self.program, self._called = self._compiled(arguments[:first], named, arguments[first:]), called
            self._watch = ModelWatch(self.model, self.loss, (), are_hooked=True)
        if called != self._called:
            raise InputError(f"step: arguments must be as in the first call, {self._called[1:]}, got {called[1:]}")
        if self._watch is None or not self._watch.is_unchanged():
            raise InputError("step: the model is no longer as it was at the first call; apply the plan anew")
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        names = [_own(role) for role, _, _ in self.program.inputs if role.kind == "parameter"]
        loss: Tensor = _Joint.apply(self, tensors, *(_local(parameters[name]) for name in names))
        return loss

    def _compiled(self, inputs: Sequence[object], named: dict[str, object], targets: Sequence[object]) -> Program:
        """The program of this rank, from a capture of the whole model, whose numbers don't matter."""
        if named and inputs:
            raise InputError("step: must get the model's inputs all by name, or none of them")
        with whole_model(self.model, self._shapes):
            given: Any = {key: _example(value) for key, value in named.items()} or [_example(each) for each in inputs]
            work = Workload(self.model, given, self.loss, [_example(target) for target in targets])
            _, joint = joint_of(work)
        if any(draws(node) for node in joint.module.graph.nodes if node.op == "call_function"):
            _check_random_state(self.mesh)
        return compiled(joint, self.layouts, self.place, *(() if self._cost is None else (self._cost,)))

    def run_forward(self, leaves: Sequence[Tensor], parameters: Sequence[Tensor]) -> tuple[list[object], Tensor]:
        """What the backward pass needs, by slots, and the loss."""
        assert self.program is not None
        values: list[object] = [None] * self.program.size
        buffers, given = dict(self.model.named_buffers(remove_duplicate=False)), iter(parameters)
        for role, layout, slot in self.program.inputs:
            if role.kind == "parameter":
                values[slot.number] = next(given)
            elif role.kind == "buffer":
                values[slot.number] = self._part(buffers[_own(role)], layout)
            elif role.kind == "input":
                values[slot.number] = self._part(leaves[role.index], layout)
        for constant, layout, slot in self.program.constants:
            values[slot.number] = self._part(constant, layout)
        run_instructions(self.program.forward, values, self.exchange)
        loss: Tensor | None = None
        for role, _, slot in self.program.outputs:
            made = values[slot.number]
            if role.kind == "buffer":
                assert isinstance(made, torch.Tensor)
                _local(buffers[_own(role)]).copy_(made)
                values[slot.number] = None
            elif role.kind == "output":
                assert isinstance(made, torch.Tensor)
                loss, values[slot.number] = made, None
        assert loss is not None
        return values, loss

    def run_backward(self, values: list[object], tangent: Tensor) -> dict[str, Tensor]:
        """The gradients of parameters, by name, in their layouts."""
        assert self.program is not None
        for role, _, slot in self.program.inputs:
            if role.kind == "tangent":
                values[slot.number] = tangent
        run_instructions(self.program.backward, values, self.exchange)
        found: dict[str, Tensor] = {}
        for role, _, slot in self.program.outputs:
            made = values[slot.number]
            if role.kind == "gradient" and isinstance(made, torch.Tensor):
                found[role.name] = made
        values.clear()  # a gradient that nobody else holds is not copied
        return found

    def _part(self, tensor: Tensor, layout: str) -> Tensor:
        """This rank's part of a whole tensor, or of a DTensor in any layout."""
        if isinstance(tensor, DTensor):
            local: Tensor = tensor.detach().redistribute(self.mesh, placements_of(layout)).to_local()
            return local
        return self.place.cut(tensor, layout)


class _Joint(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """The forward and the backward part of a program as one function of the local parameters."""

    @staticmethod
    def forward(ctx: Any, step: ShardedStep, leaves: Sequence[Tensor], *parameters: Tensor) -> Tensor:
        values, loss = step.run_forward(leaves, [parameter.detach() for parameter in parameters])
        ctx.step, ctx.values = step, values
        return loss

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.values is None:
            raise RuntimeError("the values of this step are gone: a loss has one backward pass")
        values, ctx.values = ctx.values, None
        found = ctx.step.run_backward(values, tangents[0])
        names = [role.name for role, _, _ in ctx.step.program.inputs if role.kind == "parameter"]
        return (None, None, *(found.pop(name, None) for name in names))


def _own(role: Role) -> str:
    return model_name(role.name)


def _local(tensor: Tensor) -> Tensor:
    local: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local


def _example(value: object) -> object:
    """A whole tensor of the same shape, in the place of a DTensor."""
    return torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, DTensor) else value


def _mesh(layouts: MeshLayouts, mesh: DeviceMesh | None, device: torch.device) -> DeviceMesh:
    shape = " x ".join(map(str, layouts.mesh))
    if mesh is None and rank_count() != layouts.device_count:
        rule = f"mesh: {shape} takes {layouts.device_count} processes of torch.distributed"
        raise InputError(f"{rule}, got {rank_count()}; start them, and call init_process_group")
    mesh = mesh or init_device_mesh(device.type, layouts.mesh)
    if tuple(mesh.shape) != layouts.mesh:
        raise InputError(f"mesh: must be {shape}, as in the plan, got {' x '.join(map(str, mesh.shape))}")
    return mesh


def _check_random_state(mesh: DeviceMesh) -> None:
    """Raise `InputError` where ranks would draw other random numbers than each other."""
    state = device_of(torch.device(mesh.device_type)).random_state()
    digests: list[object] = [None] * rank_count()
    torch.distributed.all_gather_object(digests, hashlib.sha256(bytes(state.cpu().numpy())).hexdigest())
    if len(set(digests)) > 1:
        raise InputError("step: the model draws random numbers, and ranks must draw the same; call torch.manual_seed"
                         " with one seed on all")  # fmt: skip
