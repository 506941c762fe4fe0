"""What of a model a captured step rests on, and the models that it would train otherwise than eager: they are refused.

A model and its loss are traced as one module that takes tensors alone. Whether the model is still as it was a step ago
is seen in microseconds; what differs then is for `ModelState.check` to say. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from gapless.errors import InputError
from gapless.torch.capture.settings import ABSENT, plain_attributes, same, settings_of, shown
from gapless.torch.library import (
    Loss,
    Module,
    Tensor,
    TreeSpec,
    named_tensors,
    torch,
    tree_flatten,
    tree_unflatten,
    written_buffers,
)

__all__ = [
    "HOOKS",
    "ModelState",
    "ModelStep",
    "ModelWatch",
    "check_parameters",
    "check_plain",
    "check_traceable",
    "loss_of",
    "refuse_autocast",
    "refuse_inner_hooks",
    "titled_modules",
]


_AVERAGE = "and average the gradients of all ranks after each step"
_WRAPPERS = {
    "DistributedDataParallel": f"whose all-reduce a planned step doesn't run; pass model.module, {_AVERAGE}",
    "DataParallel": "whose replicas a planned step doesn't make; pass model.module",
    "FullyShardedDataParallel": "whose parameters lie in shards; capture the model before it is sharded",
    "FSDPModule": "whose parameters lie in shards; capture the model before fully_shard",
    "OptimizedModule": "which runs code of its own; pass the model that torch.compile was given, model._orig_mod",
}
"""What PyTorch wraps models in, why a plan can't run it, and what to pass instead."""
_SHARDED = "FSDPModule"
"""What fully_shard makes of a module."""

HOOKS = {
    "_forward_hooks": "forward hook", "_forward_pre_hooks": "forward pre-hook", "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}  # fmt: skip
_REPARAMETRISES = "torch.nn.utils."
"""Where the hooks come from that are traced whole: they compute a weight and keep nothing of what they see."""


@dataclass(frozen=True)
class ModuleState:
    """Of a module: its type, whether it trains, and its plain attributes, by name; likewise of other settings."""

    kind: type
    is_training: bool
    attributes: Mapping[str, object]


@dataclass(frozen=True)
class ModelState:
    """What a capture takes for granted beside shapes: it is traced into the graph.

    `modules`: of the model, and of a loss that is a module, by their titles; and other settings. `trainable`: the
    parameters that get gradients. `shared`: the names of each tensor that has several. `types`: the names of
    parameters and buffers with their types. `advanced`: (title, attribute) of what the forward pass itself has changed,
    such as counters, which may go on.
    """

    modules: Mapping[str, ModuleState]
    trainable: frozenset[str]
    shared: frozenset[frozenset[str]]
    types: frozenset[tuple[str, torch.dtype]]
    advanced: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, model: Module, loss: Loss | None = None) -> ModelState:
        """The state that a model is in."""
        parameters, buffers = named_tensors(model).values()
        names: dict[int, set[str]] = {}
        for name, tensor in (*parameters.items(), *buffers.items()):
            names.setdefault(id(tensor), set()).add(name)
        modules = dict(titled_modules(model, loss))
        return cls(
            {
                **{
                    title: ModuleState(type(module), bool(module.training), plain_attributes(vars(module)))
                    for title, module in modules.items()
                },
                **{
                    settings.title: ModuleState(settings.kind, False, settings.plain)
                    for settings in settings_of(modules.items(), loss)
                },
            },
            frozenset(name for name, parameter in parameters.items() if parameter.requires_grad),
            frozenset(frozenset(same) for same in names.values() if len(same) > 1),
            frozenset((name, tensor.dtype) for name, tensor in (*parameters.items(), *buffers.items())),
        )

    @property
    def is_training(self) -> bool:
        """Whether the model as a whole was in training mode."""
        return self.modules[_MODEL].is_training

    def after_forward(self, model: Module, loss: Loss | None = None) -> ModelState:
        """The state of a model that was in this one before its forward pass ran: what differs now, that has changed."""
        now = ModelState.of(model, loss)
        changed = {pair for pair, _, _ in self._changed(now)}
        return replace(now, advanced=self.advanced | changed)

    def check(self, model: Module, loss: Loss | None = None) -> None:
        """Raise `InputError` where a model is in another state, or has hooks that a planned step doesn't run."""
        refuse_hooks(model)
        self._compare(ModelState.of(model, loss))

    def fits(self, now: ModelState) -> bool:
        """Whether a model in that state computes what was captured in this one."""
        try:
            self._compare(now)
        except InputError:
            return False
        return True

    def differences(self, now: ModelState) -> list[str]:
        """What of a model in that state is otherwise than in this one, for people."""
        names = [f"{name} of {title}" for (title, name), _, _ in self._changed(now)]
        return names or ["what is trained or tied, or a mode" if self != now else "nothing"]

    def _compare(self, now: ModelState) -> None:
        for title in sorted({*now.modules, *self.modules}):
            self._check_module(title, self.modules.get(title), now.modules.get(title))
        for (title, name), was, value in self._changed(now):
            had = f"no plain {name} of its own" if was is ABSENT else f"{name} = {shown(was)}"
            has = "none" if value is ABSENT else shown(value)
            rule = f"step: {title} had {had} at capture, has {has} now"
            raise InputError(f"{rule}; set it back, capture again, or make it a buffer, which may change")
        if name := min(now.trainable ^ self.trainable, default=""):
            was = "trained" if name in self.trainable else "frozen"
            raise InputError(f"step: parameter {name!r} was {was} at capture; set requires_grad back, or capture again")
        if differ := now.shared ^ self.shared:
            names = ", ".join(sorted(min(differ, key=sorted)))
            raise InputError(f"step: {names} must share a tensor, or not, as at capture; capture again")
        if others := now.types - self.types:
            name, dtype = min(others, key=str)
            raise InputError(f"step: {name!r} had another type than {dtype} at capture; cast it back, or capture again")

    def _check_module(self, title: str, was: ModuleState | None, now: ModuleState | None) -> None:
        if was is None or now is None:
            raise InputError(f"step: {title} was {'not there' if was is None else 'there'} at capture; capture again")
        if was.kind is not now.kind:
            rule = f"step: {title} was a {was.kind.__name__} at capture, is a {now.kind.__name__}"
            raise InputError(f"{rule}; put it back, or capture again")
        if was.is_training != now.is_training:
            rule = f"step: {title} was captured in {'training' if was.is_training else 'evaluation'} mode"
            raise InputError(f"{rule}; set it back with .train() or .eval(), or capture again in this mode")

    def _changed(self, now: ModelState) -> Iterator[tuple[tuple[str, str], object, object]]:
        """(title, attribute), its value in this state and now, of the attributes that differ."""
        for title, was in self.modules.items():
            own = now.modules[title].attributes if title in now.modules else {}
            for name in sorted({*was.attributes, *own}):
                values = was.attributes.get(name, ABSENT), own.get(name, ABSENT)
                if (title, name) not in self.advanced and not same(*values):
                    yield (title, name), *values


_MODEL = "the model"


def titled_modules(model: Module, loss: Loss | None = None) -> Iterator[tuple[str, Module]]:
    """All modules of a model, and of a loss that is a module, with what they are called in messages."""
    for name, module in model.named_modules():
        yield _titled(name), module
    if isinstance(loss, torch.nn.Module):
        for name, module in loss.named_modules():
            yield f"module {name!r} of the loss" if name else "the loss", module


def check_plain(model: Module) -> None:
    """Raise `InputError` for a wrapped, sharded or compiled model, and for hooks that a planned step doesn't run."""
    check_traceable(model)
    refuse_hooks(model)


def check_traceable(model: Module, is_called: bool = False) -> None:
    """Raise `InputError` for a wrapped, sharded or compiled model, or one without shapes.

    `is_called`: what is traced are its calls, for which `fully_shard` has gathered its parameters.
    """
    for name, module in model.named_modules():
        title = _titled(name)
        for kind in type(module).__mro__:
            if is_called and kind.__name__ == _SHARDED:
                _refuse_part(module, model, title)
            elif kind.__module__.startswith("torch.") and kind.__name__ in _WRAPPERS:
                raise InputError(f"{title} is a {kind.__name__}, {_WRAPPERS[kind.__name__]}")
        if getattr(module, "_compiled_call_impl", None) is not None:
            raise InputError(f"{title} was compiled in place, and can't be traced; capture it without .compile()")
    for name, parameter in model.named_parameters():
        if torch.nn.parameter.is_lazy(parameter):
            raise InputError(f"parameter {name!r} has no shape yet; run the model once before it is captured")
    if not is_called:
        check_parameters(model, "capture before it is sharded")


def check_parameters(model: Module, hint: str) -> None:
    """Raise `InputError`, which ends with a hint, for a parameter that is no plain tensor."""
    for name, parameter in model.named_parameters():
        if type(parameter.data) is not torch.Tensor:
            got = type(parameter.data).__name__
            raise InputError(f"parameter {name!r} must be a plain tensor, got a {got}; {hint}")


def _refuse_part(module: Module, model: Module, title: str) -> None:
    """Raise `InputError` for a part that fully_shard gathers by itself."""
    if module is not model:
        rule = f"{title} is gathered by itself, by fully_shard's hooks, which a planned call of the whole doesn't run"
        raise InputError(f"{rule}; plan its parts: gapless.torch.planned_blocks(model, blocks, budget)")


def refuse_inner_hooks(model: Module, but: Collection[str] = ()) -> None:
    """Raise `InputError` for a hook on a module in a model, but on those that run as they are (titles), or on all."""
    for name, module in model.named_modules():
        if any(kind.__name__ == _SHARDED for kind in type(module).__mro__):
            _refuse_part(module, model, _titled(name))
    for hook in _module_hooks(model):
        if not hook.startswith(tuple(f"{title} " for title in (_MODEL, *but))):
            rule = "which a planned call doesn't run; remove it, put it on the model itself"
            raise InputError(f"{hook}, {rule}, or name its module among islands")


def refuse_hooks(model: Module) -> None:
    """Raise `InputError` for a hook on a module or parameter, or on all modules, which a planned step doesn't run."""
    hook = next(_hooks(model), None)
    if hook is not None:
        rule = "which a planned step doesn't run; remove it, and do its work on outputs or .grad after the step"
        raise InputError(f"{hook}, {rule}")


def _hooks(model: Module) -> Iterator[str]:
    yield from _module_hooks(model)
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:  # noqa: SLF001
            yield f"parameter {name!r} has a hook on its gradient"


def _module_hooks(model: Module) -> Iterator[str]:
    everywhere = vars(torch.nn.modules.module)
    for attribute, kind in HOOKS.items():
        if everywhere.get(f"_global{attribute}"):
            yield f"all modules have a {kind}"
    for name, module in model.named_modules():
        for attribute, kind in HOOKS.items():
            hooks = getattr(module, attribute)
            if any(not _is_traced(hook) for hook in hooks.values()):
                yield f"{_titled(name)} has a {kind}"


def _is_traced(hook: object) -> bool:
    """Whether a hook of a module is one that tracing keeps; any other may look at real data, of which it sees none."""
    return str(type(hook).__module__).startswith(_REPARAMETRISES)


def _titled(name: str) -> str:
    return f"module {name!r}" if name else _MODEL


def refuse_autocast(what: str) -> None:
    """Raise `InputError` under torch.autocast."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        rule = f"{what}: must be outside of torch.autocast, of which a plan knows nothing"
        raise InputError(f"{rule}; put `with torch.autocast(...)` into the model's forward, or cast the model")


class ModelStep:
    """The module to trace: model and loss in one, with tensors only as its arguments."""

    returns_outputs = False

    def __init__(
        self, model: Module, loss: Loss | None, inputs: Collection[object], targets: tuple[object, ...]
    ) -> None:
        refuse_autocast("capture")
        check_plain(model)
        arguments, named = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
        leaves, structure = tree_flatten((arguments, named, targets))
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                raise InputError(f"capture: inputs and targets must be tensors, got {type(leaf).__name__}")
            if leaf.requires_grad:
                rule = "capture: inputs and targets must not require gradients, which only parameters get"
                raise InputError(f"{rule}; detach them, or make them parameters")
        self.leaves, self.structure, self.target_count, self.objective = leaves, structure, len(targets), loss
        self.module = _module(model, loss, structure)

    @property
    def batch(self) -> int:
        """The first dimension of the first argument: what people call the batch size."""
        shape: tuple[int, ...] = tuple(self.leaves[0].shape) if self.leaves else ()
        return max(shape[0], 1) if shape else 1


def loss_of(model: Module, loss: Loss | None, leaves: Sequence[Tensor], structure: TreeSpec) -> Tensor:
    """The loss of a model for flat arguments and targets; what it returns itself where `loss` is None."""
    arguments, named, targets = tree_unflatten(leaves, structure)
    output = model(*arguments, **named)
    return output if loss is None else loss(output, *targets)


def _module(model: Module, loss: Loss | None, structure: TreeSpec) -> Module:
    class Step(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *leaves: Tensor) -> Tensor:
            with written_buffers(self.model):
                return loss_of(self.model, loss, leaves, structure)

    step = Step()
    step.training = model.training  # without touching the modes of the model's parts
    return step


_TABLES = ("_parameters", "_buffers")
_WATCHED = ("training", "_modules", *HOOKS)
"""What every module has, and is compared with what it was."""


class ModelWatch:
    """Remembers a model, and a loss that is a module; `advanced`: as in `ModelState`, what may change.

    `are_hooked`: parameters may have hooks, since autograd itself gives them their gradients.
    """

    def __init__(
        self, model: Module, loss: Loss | None, advanced: Collection[tuple[str, str]], are_hooked: bool = False
    ) -> None:
        self._are_hooked = are_hooked
        everywhere = vars(torch.nn.modules.module)
        self._everywhere = [everywhere[f"_global{name}"] for name in HOOKS]
        self._rows, self._tensors = [], []
        modules = dict(titled_modules(model, loss))
        for title, module in modules.items():
            values = vars(module)
            own = plain_attributes(values)
            plain = {name: value for name, value in own.items() if (title, name) not in advanced}
            seen = (values["training"], *(dict(values[name]) for name in _WATCHED[1:]), *plain.values())
            sizes = tuple(len(values[name]) for name in _TABLES)
            self._rows.append((values, type(module), module, itemgetter(*_WATCHED, *plain), seen, len(values), sizes))
            self._tensors += [
                (values[name], key, tensor, None if tensor is None else tensor.dtype)
                for name in _TABLES
                for key, tensor in values[name].items()
            ]
        self._trained = [(each, each.requires_grad) for each in model.parameters()]
        self._settings = [
            settings.watch({name for title, name in advanced if title == settings.title})
            for settings in settings_of(modules.items(), loss)
        ]

    def is_unchanged(self) -> bool:
        """Whether modules, their plain attributes, tensors and hooks are as they were."""
        if any(self._everywhere):
            return False
        try:
            for values, kind, module, read, seen, count, (parameters, buffers) in self._rows:
                if (
                    read(values) != seen
                    or type(module) is not kind
                    or len(values) != count
                    or len(values["_parameters"]) != parameters
                    or len(values["_buffers"]) != buffers
                ):
                    return False
            if any(
                table[name] is not tensor or (tensor is not None and tensor.dtype is not dtype)
                for table, name, tensor, dtype in self._tensors
            ):
                return False
            if not all(is_unchanged() for is_unchanged in self._settings):
                return False
        except Exception:  # what is there no more, or tensors and arrays, which don't compare as wholes
            return False
        return all(
            each.requires_grad is was
            and (self._are_hooked or not (each._backward_hooks or each._post_accumulate_grad_hooks))  # noqa: SLF001
            for each, was in self._trained
        )
