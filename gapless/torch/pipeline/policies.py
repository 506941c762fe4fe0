"""Policies of recomputation of a model's layers: what plans of each keep within smaller and smaller memory.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile, Policy
from gapless.torch.calls.choices import BlockPlan, Choices
from gapless.torch.capture.calls import ModelCall
from gapless.torch.capture.graph import capture_call
from gapless.torch.library import Module, Tensor
from gapless.torch.pipeline.layers import LayeredModel

__all__ = ["with_policies"]


def with_policies(
    profile: PipelineProfile, model: LayeredModel, micro_batches: int, options: SolveOptions,
    report: Callable[[str], None],
) -> PipelineProfile:  # fmt: skip
    """The profile with policies for the layers that get activations, but for the last one, whose loss isn't in a plan.

    A layer's operators are timed one by one; what a plan takes longer counts as a share of the layer's measured time.
    Layers with equal graphs share plans. What can't be captured has none. `options`: of the solve of each plan.
    """
    choices = Choices(options, None, report)
    (value, _), *_ = model.split(micro_batches)
    found: list[tuple[Policy, ...]] = []
    for number, (name, layer) in enumerate(model.layers):
        is_planned = value.dtype.is_floating_point and number < len(model.layers) - 1
        plans = _plans(name, layer, value, choices, report) if is_planned else []
        whole_s = float(profile.forward_s[number] + profile.backwards_s(False)[0][number])
        found.append(_policies(plans, int(profile.stash_bytes[number]), whole_s))
        value = layer(value).detach()
    return replace(profile, policies=tuple(found) if any(found) else ())


def _plans(
    name: str, layer: Module, value: Tensor, choices: Choices, report: Callable[[str], None]
) -> list[BlockPlan]:  # fmt: skip
    report(f"planning {name} ...")
    try:
        call = ModelCall(layer, layer.forward, (value.detach().requires_grad_(),), {})
        return choices.of(capture_call(layer, call), "")
    except InputError as error:
        report(f"{name} has no policies: {error}")
        return []


def _policies(plans: list[BlockPlan], stash_bytes: int, whole_s: float) -> tuple[Policy, ...]:
    """Of plans, the fastest first, those that keep less than all; their backward's memory beside the fastest one's."""
    found: list[Policy] = []
    for number, plan in enumerate(plans):
        if plan.kept_bytes >= stash_bytes:
            continue
        again_s = max(plan.duration_s / plans[0].duration_s - 1, 0.0) * whole_s
        working = max(stash_bytes + plan.backward_bytes - plans[0].backward_bytes, plan.kept_bytes)
        found.append(Policy(f"plan-{number}", plan.kept_bytes, again_s, working))
    return tuple(found)
