"""Where a model has eager islands: modules by name and functions, which stand for themselves while a model is traced.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from gapless.errors import InputError
from gapless.torch.islands.island import Island, IslandChanged, filled, is_plain
from gapless.torch.islands.operators import island_outputs, known_islands
from gapless.torch.islands.probe import looked_at
from gapless.torch.islands.stand_ins import (
    Functions,
    Run,
    Site,
    SiteCall,
    StandIn,
    forgetting,
    original,
    replaced,
    title_of,
)
from gapless.torch.joint_graph import RefusedOp
from gapless.torch.library import Module, Tensor, torch, tree_unflatten
from gapless.torch.step_state import StepState, unchanged
from gapless.units import format_bytes

__all__ = ["Islands"]

_linalg, _losses = torch.linalg, torch.nn.functional
_FUNCTIONS: dict[str, tuple[Callable[..., object], ...]] = {
    "aten._ctc_loss": (_losses.ctc_loss, torch.ctc_loss),
    "aten.linalg_lstsq": (_linalg.lstsq,),
    "token": (
        _linalg.inv, _linalg.cholesky, _linalg.solve, _linalg.lu_factor, _linalg.ldl_factor, _linalg.tensorinv,
        _linalg.tensorsolve, torch.inverse, torch.Tensor.inverse, torch.cholesky, torch.Tensor.cholesky,
    ),
}  # fmt: skip
"""Functions that are islands of their own, since what they return has a shape that depends on no data, by the operator
that can't be traced; "token": of those that look at whether they succeeded."""
_ROOM = 1.25
"""How much more than the most that was seen an island has room for, where that depends on data."""
_MOST_NAMED = 3
_UNCALLED = (torch.nn.ModuleList, torch.nn.ModuleDict)


class Islands:
    """The islands of a model, which are named or found while it is captured.

    `names`: of modules. `report`: is called with a line for what is found. Raises `InputError` for a name that the
    model doesn't have.
    """

    def __init__(self, model: Module, names: Collection[str], report: Callable[[str], None]) -> None:
        self._model, self._report = model, report
        modules = dict(model.named_modules())
        for name in names:
            if name not in modules or not name:
                known = ", ".join(list(modules)[1:4])
                raise InputError(f"islands: must be names of modules in the model ({known}, ...), got {name!r}")
        self._sites: dict[Site, str] = dict.fromkeys(names, "")
        """With the reason that is still to be reported."""
        self._first: tuple[InputError, dict[Site, str]] | None = None
        """The first error of a capture, and the sites before it."""
        self._is_inside = False
        self._islands: list[Island] = []
        self._calls: dict[Site, list[SiteCall]] = {}
        self._needed_bytes: dict[str, int] = {}
        self.has_outgrown = False
        """Whether an island has taken more than it was planned with; the next plan has room for that."""

    def __getstate__(self) -> dict[str, object]:
        """Copies look at their islands anew."""
        return {**self.__dict__, "_islands": [], "_calls": {}, "_first": None}

    @property
    def modules(self) -> frozenset[str]:
        """The names of the modules that run by autograd itself: islands and what is in them."""
        names = [site for site in self._sites if isinstance(site, str)]
        inside = [name for name, _ in self._model.named_modules() if any(_is_in(name, site) for site in names)]
        return frozenset(inside)

    @property
    def titles(self) -> list[str]:
        """What they are called in messages."""
        return [title_of(name) for name in self.modules]

    # -- finding -------------------------------------------------------------------------------------------------------

    def find(self, error: InputError) -> bool:
        """Make an island of what could not be captured, and report it; whether there is something."""
        cause = error.__cause__
        self._first = self._first or (error, dict(self._sites))
        operator = error.operator if isinstance(error, RefusedOp) else _operator(cause)
        sites = [site for site in _FUNCTIONS.get(operator, ()) if site not in self._sites]
        reason = str(error).removeprefix("capture: ").removeprefix("the model can't be captured as one graph: ")
        reason = reason.partition(";")[0]
        if sites:
            self._sites.update(dict.fromkeys(sites, reason))
            return True
        if isinstance(cause, IslandChanged):
            return self.grow(cause)
        failing = "" if cause is None else self._failing(cause)
        inside = self.modules
        names = [name for name in self._alike(failing) if name not in inside] if failing else []
        if names:
            self._add(names, reason)
        return bool(names)

    def grow(self, changed: IslandChanged) -> bool:
        """Make an island of the module around one that changed; whether there is one."""
        around = self._around(changed)
        if around:
            self._add([around], str(changed))
        return bool(around)

    def grow_or_refuse(self, changed: IslandChanged) -> None:
        """Let an island grow that changed in a planned call. Raises `InputError` where it is in the model itself."""
        if not self.grow(changed):
            rule = f"planned: {changed}, and what reads it is planned"
            raise InputError(f"{rule}; put both into one module, and name that among islands") from None

    def state(self, devices: Collection[torch.device]) -> StepState | None:
        """Of random generators and what islands change themselves, to go back to; None where there are no islands."""
        if not self._sites:
            return None
        modules = [self._model.get_submodule(site) for site in self._sites if isinstance(site, str)]
        return StepState.of(torch.nn.ModuleList(modules), devices)

    def _around(self, changed: IslandChanged) -> str:
        """The module around an island, empty where that is the model itself."""
        modules = dict(self._model.named_modules())
        name = next((site for site in self._sites if isinstance(site, str) and title_of(site) == changed.title), "")
        while name:
            name = name.rpartition(".")[0]
            if not isinstance(modules[name], _UNCALLED):
                return name
        return ""

    def _add(self, names: Sequence[str], reason: str) -> None:
        """Let modules be islands, in the place of those in them."""
        for site in list(self._sites):
            if isinstance(site, str) and any(_is_in(site, name) for name in names):
                del self._sites[site]
        self._sites.update(dict.fromkeys(names, reason))

    def _report_new(self) -> None:
        """A line for what has become an island, and is called."""
        new: dict[str, list[Site]] = {}
        for site, reason in self._sites.items():
            if reason and site in self._calls:
                new.setdefault(reason, []).append(site)
        for reason, sites in new.items():
            more = f" and {len(sites) - _MOST_NAMED} more" if len(sites) > _MOST_NAMED else ""
            titles = ", ".join(map(title_of, sites[:_MOST_NAMED])) + more
            run = "runs as an eager island" if len(sites) == 1 else "run as eager islands"
            self._report(f"{titles} {run}: {reason}")
            self._sites.update(dict.fromkeys(sites, ""))

    def _failing(self, error: BaseException) -> str:
        """The innermost module of the model in which an error was raised; empty for the model itself."""
        names = {id(module): name for name, module in self._model.named_modules()}
        found, trace = "", error.__traceback__
        while trace is not None:
            name = names.get(id(trace.tb_frame.f_locals.get("self")), "")
            found, trace = name or found, trace.tb_next
        return found

    def _alike(self, name: str) -> list[str]:
        """A module, and those of the same class where that is a user's own: their code is the same."""
        modules = dict(self._model.named_modules())
        kind = type(modules[name])
        if kind.__module__.startswith("torch."):
            return [name]
        alike = [other for other, module in modules.items() if type(module) is kind and other]
        return [other for other in alike if not any(_is_in(other, one) and other != one for one in alike)]

    # -- standing in ---------------------------------------------------------------------------------------------------

    @contextmanager
    def known(self, step: Module, leaves: Sequence[Tensor]) -> Iterator[None]:
        """Look at the islands in a run of `step`, a module that runs the model, and let them stand for themselves."""
        if not self._sites:
            self._first = None
            with known_islands(()):
                yield
            return
        self._islands, self._calls = [], {}
        device = leaves[0].device if leaves else torch.device("cpu")
        modules = list(self._model.modules())
        before = [(own, dict(own)) for module in modules for own in (vars(module), vars(module)["_buffers"])]
        try:
            with (
                unchanged(self._model, device),
                torch.enable_grad(),
                self._standing(step, self._looked_at),
                forgetting(),
            ):
                step(*leaves)
        except IslandChanged as changed:
            raise InputError(f"capture: {changed}") from changed
        except Exception as error:  # the model itself is wrong
            if self._first is None or isinstance(error, InputError):
                raise
            first, self._sites = self._first
            raise first from None
        finally:
            for own, values in before:
                own.clear()
                own.update(values)
        self._report_new()
        with known_islands(self._islands), self._standing(step, self._traced):
            yield

    @contextmanager
    def _standing(self, step: Module, run: Run) -> Iterator[None]:
        """Let islands be run by `run` whenever `step` runs."""
        self._counted: Counter[Site] = Counter()
        forward = step.forward
        functions = Functions(self.function, run)

        def counted(*leaves: Tensor) -> object:
            self._counted.clear()
            with functions:
                return forward(*leaves)

        modules = dict(self._model.named_modules())
        with ExitStack() as stack:
            for site in self._sites:
                if isinstance(site, str):
                    stack.enter_context(replaced(modules[site], StandIn(site, run)))
            step.forward = counted
            stack.callback(delattr, step, "forward")
            yield

    def function(
        self, run: Run, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> object:
        """A call of a function, which is an island or not."""
        if function in self._sites and not self._is_inside:
            return run(function, arguments, named)
        return function(*arguments, **named)

    def _looked_at(self, site: Site, arguments: Sequence[object], named: Mapping[str, object]) -> object:
        """Run an island for real, and note what it is."""
        call = SiteCall(self._model, site, arguments, named)
        with self._inside(site):
            island, outputs = looked_at(
                call.title, call.body, [*call.tensors, *call.parameters()], len(call.tensors), call.module
            )
        for part in island.parts:
            if not (is_plain(part) or hasattr(part, "number")):
                raise IslandChanged(call.title, f"returns a {type(part).__name__}, in which tensors can't be seen")
        call.number = len(self._islands)
        self._islands.append(self._with_room(island))
        self._calls.setdefault(site, []).append(call)
        return tree_unflatten(filled(island.parts, outputs), island.structure)

    def _with_room(self, island: Island) -> Island:
        """An island with the room that it has needed before, since what it takes depends on data."""
        more_bytes = max(self._needed_bytes.get(island.title, 0) - island.most_bytes, 0)
        forward_bytes, backward_bytes = island.peak_bytes
        return replace(
            island,
            kept_bytes=island.kept_bytes + more_bytes,
            peak_bytes=(forward_bytes + more_bytes, backward_bytes + more_bytes),
            most_bytes=island.most_bytes + more_bytes,
            note=self._outgrown,
        )

    def _outgrown(self, island: Island, size_bytes: int) -> None:
        self.has_outgrown = True
        self._needed_bytes[island.title] = int(_ROOM * size_bytes)
        sizes = f"{format_bytes(size_bytes)}, planned with {format_bytes(island.most_bytes)}"
        self._report(f"{island.title} keeps {sizes}; the next call is planned anew, with {_ROOM:g} times that")

    @contextmanager
    def _inside(self, site: Site) -> Iterator[None]:
        self._is_inside = True
        try:
            with original(self._model.get_submodule(site)) if isinstance(site, str) else nullcontext():
                yield
        finally:
            self._is_inside = False

    def _traced(self, site: Site, arguments: Sequence[object], named: Mapping[str, object]) -> object:
        """Put an island into a trace."""
        seen = self._calls[site]
        call = seen[self._counted[site] % len(seen)]
        self._counted[site] += 1
        island = self._islands[call.number]
        now = SiteCall(self._model, site, arguments, named)
        shapes = [tuple(tensor.shape) for tensor in now.tensors]
        if now.structure != call.structure or shapes != [each.shape for each in island.given[: island.argument_count]]:
            raise InputError(f"capture: {call.title} is called otherwise when it is traced; name the module around it")
        outputs = island_outputs(island, call.number, [*now.tensors, *now.parameters()])
        return tree_unflatten(filled(island.parts, outputs), island.structure)


def _operator(error: BaseException | None) -> str:
    """The name of the operator that an error of the tracer is about, without its overload."""
    return str(getattr(error, "func", "")).rpartition(".")[0]


def _is_in(name: str, site: str) -> bool:
    return name == site or name.startswith(f"{site}.")
