"""A plan's groups as FSDP2 has them: calls of `fully_shard`, and what each group gathers ahead. Needs `torch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.formats.exports import export_format
from gapless.io.formats.fsdp2 import Fsdp2Wrapping, read_fsdp2
from gapless.io.plan import FORMAT as PLAN_FORMAT
from gapless.io.record import load_record
from gapless.processes.exit import temporary_folder
from gapless.result import read_saved
from gapless.torch.library import Module, torch

__all__ = ["DTYPES", "apply", "modules_of"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
Layers = Mapping[str, Module] | Sequence[Module]


def apply(
    model: Module,
    plan: Fsdp2Wrapping | str | Path,
    mesh: torch.distributed.DeviceMesh | None = None,
    layers: Layers | None = None,
) -> Any:
    """The model, wrapped in place by `fully_shard` as a plan says; a module of FSDP2.

    `plan`: a plan file, or what `gapless export --format fsdp2` has written. `mesh`: the ranks that parameters are
    sharded over, node by node; all of the process group unless it is given. `layers`: the plan's layers among the
    model's modules, by name or in order; without them, the modules that have these names.

    Raises `InputError` for layers that the model hasn't, that have other numbers of parameters, share some, or leave
    some out, and for ranks that aren't whole nodes of the plan.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    wrapping = plan if isinstance(plan, Fsdp2Wrapping) else _read(plan)
    modules = modules_of(model, wrapping, layers)
    if mesh is None:
        kind = next(model.parameters()).device.type
        mesh = init_device_mesh(kind, (torch.distributed.get_world_size(),))
    nodes = _nodes(mesh, wrapping)
    heads: list[Any] = [modules[group.first] for group in wrapping.groups]
    for group in wrapping.groups:
        members = modules[group.first : group.last + 1]
        precisions = MixedPrecisionPolicy(param_dtype=DTYPES[group.gather], reduce_dtype=DTYPES[group.scatter])
        is_secondary = group.sharding == "secondary"
        fully_shard(
            members if len(members) > 1 else members[0], mesh=nodes if group.sharding == "hybrid" else mesh,
            reshard_after_forward=wrapping.ranks_per_node if is_secondary else not group.kept, mp_policy=precisions,
        )  # fmt: skip
    whole = fully_shard(model, mesh=mesh)
    for head, group in zip(heads, wrapping.groups, strict=True):
        head.set_modules_to_forward_prefetch([heads[each] for each in group.forward_prefetch])
        # what is gathered already isn't gathered again; an empty list would have FSDP2 choose by itself
        head.set_modules_to_backward_prefetch([heads[each] for each in group.backward_prefetch] or [head])
    _limit_scatters(whole, wrapping.scatters_in_flight)
    return whole


def _nodes(mesh: torch.distributed.DeviceMesh, wrapping: Fsdp2Wrapping) -> torch.distributed.DeviceMesh:
    """Nodes by the ranks of each, where the plan has any; else the mesh as it is."""
    from torch.distributed.device_mesh import DeviceMesh

    kinds, count = {group.sharding for group in wrapping.groups}, wrapping.ranks_per_node
    if kinds == {"full"}:
        return mesh
    if mesh.ndim != 1 or mesh.size() % count or mesh.size() <= count:
        rule = f"must be several nodes of the plan's {count} ranks, in one dimension"
        raise InputError(f"mesh: {rule}, got {' by '.join(map(str, mesh.shape))}")
    if "hybrid" not in kinds:
        return mesh
    return DeviceMesh(mesh.device_type, mesh.mesh.view(-1, count), mesh_dim_names=("replicate", "shard"))


def _read(path: str | Path) -> Fsdp2Wrapping:
    """What is exported, or what exports a plan."""
    if load_record(path).text("format", default="") != PLAN_FORMAT:
        return read_fsdp2(path)
    plan = read_saved(path)
    with temporary_folder("gapless-fsdp2-") as folder:
        exported = Path(folder) / "wrapping.json"
        export_format(plan, "fsdp2").write(str(exported), plan, {})
        return read_fsdp2(exported)


def _limit_scatters(whole: Any, most: int) -> None:
    if hasattr(whole, "set_reduce_scatter_max_input_buffers"):
        whole.set_reduce_scatter_max_input_buffers(most)
    elif most > 1:
        raise InputError(
            f"plan: has {most} scatters under way at once, which takes torch 2.13, got {torch.__version__}"
        )


def modules_of(model: Module, wrapping: Fsdp2Wrapping, layers: Layers | None = None) -> list[Module]:
    """The modules that a plan's layers are, in its order: see `apply`, which raises the same."""
    names = wrapping.layer_names
    if layers is None or isinstance(layers, Mapping):
        there = dict(model.named_modules() if layers is None else layers)
        missing = [name for name in names if name not in there]
        if missing:
            raise InputError(f"model: must have the plan's layer {missing[0]!r}; give the modules as layers=")
        found = [there[name] for name in names]
    else:
        if len(layers) != len(names):
            raise InputError(f"layers: must be the plan's {len(names)}, {names[0]} to {names[-1]}, got {len(layers)}")
        found = list(layers)
    _check(model, wrapping, found)
    return found


def _check(model: Module, wrapping: Fsdp2Wrapping, modules: list[Module]) -> None:
    """That the layers have what the plan says, and all that the model has."""
    owner: dict[int, str] = {}
    for name, module, planned in zip(wrapping.layer_names, modules, wrapping.parameters, strict=True):
        count = sum(parameter.numel() for parameter in module.parameters())
        if count != planned:
            raise InputError(f"model: layer {name} must have {planned:,} parameters as in the plan, got {count:,}")
        for parameter in module.parameters():
            if owner.setdefault(id(parameter), name) != name:
                raise InputError(f"model: layers {owner[id(parameter)]} and {name} share a parameter; untie it")
    for name, parameter in model.named_parameters():
        if id(parameter) not in owner:
            raise InputError(f"model: parameter {name} must be in a layer of the plan; plan with it in one")
