"""What stands for eager islands while a model is looked at or traced: in the place of modules, and of functions.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from gapless.errors import InputError
from gapless.torch.islands.island import Body, IslandChanged, is_plain
from gapless.torch.library import Module, Tensor, torch, tree_flatten, tree_unflatten

__all__ = ["Functions", "Run", "Site", "SiteCall", "StandIn", "forgetting", "original", "replaced", "title_of"]

Site: TypeAlias = str | Callable[..., object]
"""A module's name, or a function."""
Run: TypeAlias = Callable[[Site, Sequence[object], Mapping[str, object]], object]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_Function: TypeAlias = Callable[[Run, Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]


class SiteCall:
    """A call of a site: its tensors, its parameters, and how to run it again."""

    def __init__(self, model: Module, site: Site, arguments: Sequence[object], named: Mapping[str, object]) -> None:
        self.title = title_of(site)
        self.module = model.get_submodule(site) if isinstance(site, str) else None
        self.number = -1
        self._function = site if callable(site) else None
        self._parts, self.structure = tree_flatten((tuple(arguments), dict(named)))
        self._places = [place for place, part in enumerate(self._parts) if isinstance(part, torch.Tensor)]
        self.tensors = [self._parts[place] for place in self._places]
        for part in self._parts:
            if not (isinstance(part, torch.Tensor) or is_plain(part)):
                raise IslandChanged(self.title, f"takes a {type(part).__name__}, in which tensors can't be seen")
        for place in self._places:
            self._parts[place] = None

    def parameters(self) -> list[Tensor]:
        """Those of the module that are trained, as they are now."""
        if self.module is None:
            return []
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    @property
    def body(self) -> Body:
        """Runs the site on tensors, and on parameters after them."""
        parts, places, structure, module, function = (
            self._parts, self._places, self.structure, self.module, self._function
        )  # fmt: skip
        names = (
            [] if module is None else [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        )

        def run(tensors: Sequence[Tensor]) -> object:
            flat = list(parts)
            for place, tensor in zip(places, tensors, strict=False):
                flat[place] = tensor
            arguments, named = tree_unflatten(flat, structure)
            if module is None:
                assert function is not None
                return function(*arguments, **named)
            own = dict(zip(names, tensors[len(places) :], strict=True))
            return torch.func.functional_call(module, own, arguments, named)

        return run


class Functions(torch.overrides.TorchFunctionMode):  # type: ignore[misc,unused-ignore]
    """Lets functions that are islands be run by `run`."""

    def __init__(self, function: _Function, run: Run) -> None:
        super().__init__()
        self._function, self._run = function, run

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self._function(self._run, func, args, kwargs or {})


class StandIn:
    """The forward pass of a module that is an island; no function, which would be taken for a setting of the module."""

    def __init__(self, site: Site, run: Run) -> None:
        self._site, self._run = site, run

    def __call__(self, *arguments: object, **named: object) -> object:
        return self._run(self._site, arguments, named)


_ORIGINAL = "_gapless_original"


@contextmanager
def replaced(module: Module, forward: Callable[..., object]) -> Iterator[None]:
    """Let a module have another forward pass, and no hooks, which are run with its own."""
    own = vars(module)
    before = {name: own[name] for name in (*_HOOKS, "forward") if name in own}
    own.update({name: OrderedDict() for name in _HOOKS}, forward=forward)
    own[_ORIGINAL] = before
    try:
        yield
    finally:
        for name in (*_HOOKS, "forward", _ORIGINAL):
            own.pop(name, None)
        own.update(before)


@contextmanager
def original(module: Module) -> Iterator[None]:
    """Let a replaced module be itself for a time."""
    own = vars(module)
    now = {name: own[name] for name in (*_HOOKS, "forward", _ORIGINAL)}
    del own["forward"]
    own.update(now[_ORIGINAL])
    try:
        yield
    finally:
        own.update(now)


@contextmanager
def forgetting() -> Iterator[None]:
    """Let autograd note what has gradients, and keep nothing for them."""

    def unpack(_: None) -> Tensor:
        raise InputError("capture: a model that asks for gradients inside can't have islands")

    with torch.autograd.graph.saved_tensors_hooks(lambda _: None, unpack):
        yield


def title_of(site: Site) -> str:
    return f"module {site!r}" if isinstance(site, str) else str(torch.overrides.resolve_name(site))
