"""Gradients that come for outputs beside a loss, where a call is planned for the gradient of its loss alone.

The call's forward pass runs once more, by autograd itself, on the same arguments, parameters, buffers and random state,
and the backward pass through it has all gradients. No plan says what memory that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from gapless.torch.capture.calls import ModelCall
from gapless.torch.capture.model_state import ModelState
from gapless.torch.capture.program import CapturedStep
from gapless.torch.devices import device_of, random_state, set_random_state
from gapless.torch.library import Module, Tensor, named_tensors, torch

__all__ = ["CAME", "Beside", "draws"]

CAME = (
    "a gradient came for an output beside the loss of a planned call: that backward pass ran without a plan, and calls "
    "are planned for all gradients from now on; gradients='all' plans so from the start"
)
_CHANGED = (
    "a gradient came for an output beside the loss of a planned call, and {what}, so that the call can't run again; "
    "pass gradients='all' to planned()"
)


def draws(step: CapturedStep) -> bool:
    """Whether a captured call draws random numbers."""
    calls = [call for operator in step.operators if operator is not None for call in operator.calls]
    return any(call.random for call in calls)


@dataclass(frozen=True)
class Beside:
    """What a call needs to run again, as it was before its forward pass.

    `others`: parameters that no gradient of the loss is for. `buffers`: copies of those that the call updates.
    `random`: states of generators. `autocast`: types by kinds of devices. `came`: is called where a gradient comes.
    """

    call: ModelCall
    model: Module
    state: ModelState
    leaves: list[Tensor]
    others: list[Tensor]
    versions: list[int]
    buffers: dict[str, Tensor]
    random: list[tuple[torch.device, Tensor]]
    autocast: dict[str, torch.dtype]
    runs_again: bool
    came: Callable[[], None]

    @classmethod
    def of(
        cls,
        step: CapturedStep,
        call: ModelCall,
        model: Module,
        tensors: dict[str, dict[str, Tensor]],
        leaves: list[Tensor],
        trained: Sequence[Sequence[Tensor]],
        is_random: bool,
        runs_again: bool,
        came: Callable[[], None],
    ) -> Beside:
        """Before the forward pass. `tensors`: the model's, by kind and name. `runs_again`: whether a second pass
        does what the first one does.
        """
        known = {id(tensor) for segment in trained for tensor in segment}
        wanted = [*tensors["parameter"].values(), *leaves]
        others = [each for each in wanted if each.requires_grad and id(each) not in known]
        devices = {torch.device("cpu"), step.device} if is_random else set()
        kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
        return cls(
            call=call,
            model=model,
            state=step.state,
            leaves=leaves,
            others=others,
            versions=_versions([*others, *leaves]),
            buffers={name: tensors["buffer"][name].clone() for _, name in step.updates},
            random=[(device, random_state(device)) for device in devices],
            autocast={kind: torch.get_autocast_dtype(kind) for kind in kinds},
            runs_again=runs_again and not step.state.advanced,
            came=came,
        )

    def gradients(self, wanted: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Of parameters and arguments, from the gradients of all outputs. Raises where the call can't run again."""
        if not self.runs_again:
            raise RuntimeError(_CHANGED.format(what="the model has islands or counts its calls"))
        if _versions([*self.others, *self.leaves]) != self.versions:
            raise RuntimeError(_CHANGED.format(what="an argument was changed in place since"))
        if not self.state.fits(ModelState.of(self.model)):
            raise RuntimeError(_CHANGED.format(what="the model's mode or settings were changed since"))
        tensors, stand_ins = named_tensors(self.model), _StandIns()
        held = {f"model.{name}": stand_ins.of(tensor) for name, tensor in tensors["parameter"].items()}
        buffers = {**tensors["buffer"], **self.buffers}
        held |= {f"model.{name}": buffer.clone() for name, buffer in buffers.items()}
        leaves = [stand_ins.of(leaf) for leaf in self.leaves]
        with ExitStack() as stack:
            for device, state in self.random:
                stack.enter_context(device_of(device).forked_random())
                set_random_state(state, device)
            stack.enter_context(torch.enable_grad())
            for kind in ("cpu", "cuda"):
                options = {"dtype": self.autocast[kind]} if kind in self.autocast else {"enabled": False}
                if kind in self.autocast or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, **options))
            with self.call.with_all_gradients():
                outputs = torch.func.functional_call(self.call.module, held, tuple(leaves))
        given = [(output, tangent) for output, tangent in zip(outputs, tangents, strict=True) if tangent is not None]
        found = torch.autograd.grad(
            [output for output, _ in given],
            [stand_ins.of(tensor) for tensor in wanted],
            [tangent for _, tangent in given],
            allow_unused=True,
        )
        self.came()
        return list(found)


class _StandIns:
    """Leaves of a graph of their own, with the data of others, so that no hook of these runs."""

    def __init__(self) -> None:
        self._known: dict[int, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._known:
            self._known[id(tensor)] = tensor.detach().requires_grad_(tensor.requires_grad)
        return self._known[id(tensor)]


def _versions(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor._version for tensor in tensors]  # noqa: SLF001
