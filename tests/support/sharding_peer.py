"""What takes part in comparing AutoParallel with sharding: its models, and its layouts on an instance of ours."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gapless.encodings.sharding.instances.instance import FORBIDDEN, Instance

if TYPE_CHECKING:
    from torch import Tensor

    from gapless.profiles.shardings.autoparallel import PeerAnswer
    from gapless.torch.run.workload import Workload
    from gapless.torch.sharding.tables import ModelTables

__all__ = ["Spent", "instance_of", "parameters_of", "peer_tables", "spending", "with_layouts"]

_PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default")
_SEQUENCES, _TOKENS = 8, 64
_OWNER = "model."
"""How the model that returns its loss calls the one of transformers."""


class Spent:
    """Processor seconds, of this process and of those that it started and that ended."""

    cpu_s = 0.0


@contextmanager
def spending() -> Iterator[Spent]:
    """What happens within is counted."""
    spent, begin_s = Spent(), _cpu_s()
    yield spent
    spent.cpu_s = _cpu_s() - begin_s


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def peer_tables(name: str, layers: int, mesh: tuple[int, ...]) -> ModelTables:
    """The model of a shipped question on the first devices of a DGX H100."""
    from gapless.profiles.devices import named_device
    from gapless.profiles.layouts.costs import mesh_costs
    from gapless.topologies.files import named_node
    from gapless.torch.sharding.joint import joint_of
    from gapless.torch.sharding.tables import model_tables

    _, joint = joint_of(_workload(name, layers))
    return model_tables(joint, mesh_costs(named_node("dgx-h100").cluster(1), mesh, named_device("h100")))


def _workload(name: str, layers: int) -> Workload:
    """8 sequences of 64 tokens, or 8 images, with the loss."""
    import torch
    import transformers
    from rival_models import ItsLoss

    from gapless.torch.run.workload import Workload

    torch.manual_seed(0)
    if "gpt2" in name:
        config = transformers.GPT2Config(
            n_layer=layers, use_cache=False, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager"
        )
        return Workload(ItsLoss(transformers.GPT2LMHeadModel(config)), _words(config.vocab_size))
    if "llama" in name:
        config = transformers.LlamaConfig(
            vocab_size=32000, hidden_size=512, intermediate_size=1376, num_hidden_layers=layers, num_attention_heads=8,
            num_key_value_heads=8, use_cache=False, attn_implementation="eager",
        )  # fmt: skip
        return Workload(ItsLoss(transformers.LlamaForCausalLM(config)), _words(config.vocab_size))
    config = transformers.ViTConfig(num_hidden_layers=layers, attn_implementation="eager")
    given = {"pixel_values": torch.rand(_SEQUENCES, 3, 224, 224), "labels": torch.randint(0, 2, (_SEQUENCES,))}
    return Workload(ItsLoss(transformers.ViTForImageClassification(config)), given)


def _words(vocabulary: int) -> dict[str, Tensor]:
    import torch

    words = torch.randint(0, vocabulary, (_SEQUENCES, _TOKENS))
    return {"input_ids": words, "labels": words.clone()}


def instance_of(model: ModelTables, name: str, memory_bytes: int) -> Instance:
    """The instance of a model within so much memory."""
    tables = model.tables
    return Instance(
        name, tables.intervals, tables.costs_ns, tables.usages, tables.edges, tables.tables, memory_bytes
    )  # fmt: skip


def parameters_of(model: ModelTables) -> list[int]:
    """The nodes that are parameters."""
    return [number for number, each in enumerate(model.variables) if each.kind == "parameter"]


def with_layouts(model: ModelTables, instance: Instance, answer: PeerAnswer, products: int) -> Instance:
    """The same question with AutoParallel's layouts of all parameters, and of so many of the first matrix products.

    Products that AutoParallel has in another form, such as einsum, aren't among its answers. A tied parameter has the
    layout of its twin. Raises `AssertionError` where a layout isn't among the choices.
    """
    wanted: dict[int, str] = {}
    for number in parameters_of(model):
        title = model.variables[number].title.removeprefix(_OWNER)
        wanted[number] = answer.parameters.get(title) or answer.parameters["transformer.wte.weight"]
    left = list(answer.products[:products])
    for number, variable in enumerate(model.variables):
        if left and str(variable.node.target) in _PRODUCTS:
            shape, layout = left[0]
            if "x".join(map(str, variable.node.meta["val"].shape)) == shape:
                wanted[number] = layout
                left.pop(0)
    assert not left, f"{left[0]} is none of the products in order"
    costs = list(instance.costs)
    for number, layout in wanted.items():
        variable = model.variables[number]
        is_open = np.array([choice.outputs[0] == layout for choice in variable.choices])
        assert is_open.any(), f"{variable.title or variable.node.name}: {layout} is none of its choices"
        costs[number] = np.where(is_open, costs[number], FORBIDDEN)
    return replace(instance, costs=tuple(costs))
