"""What code of a model reads beside tensors, and a capture therefore takes as constant: settings.

They are the plain attributes of modules, and of objects of plain values that modules hold, such as a `config`; and
plain global variables and closures that the methods of modules read. Needs the extra `torch`.
"""

from __future__ import annotations

import dis
import pickle
import random
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from gapless.errors import InputError
from gapless.torch.library import Loss, Module, torch

__all__ = ["ABSENT", "Settings", "nothing_drawn", "plain_attributes", "reads_of", "same", "settings_of", "shown"]

ABSENT = object()
"""In the place of an attribute that isn't there, or isn't plain."""

_PLAIN = (
    int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size,
    types.FunctionType, types.BuiltinFunctionType, type,
)  # fmt: skip
_CODE = (types.FunctionType, types.BuiltinFunctionType, type)
_MOST_ENTRIES = 1000
"""Lists and mappings with more are data that a forward pass looks up, not settings."""
_MOST_SHOWN = 60
_MOST_DEPTH = 3
_OWN = frozenset({*vars(torch.nn.Module()), "_is_torch_compile", "_compile_kwargs"})
"""What every module has, and the marks that `torch.compile` leaves on a module that it is given: its own, and
Lightning's, which puts itself around it."""


@dataclass(frozen=True)
class Settings:
    """Variables that code of a model reads. `values`: as they are now; `names`: the only ones, None for all.

    `holder`, `name`: where the object is held whose variables they are, None where nobody could put another there.
    """

    title: str
    kind: type
    values: Mapping[str, object]
    names: tuple[str, ...] | None = None
    holder: Mapping[str, object] | None = None
    name: str = ""

    @property
    def plain(self) -> dict[str, object]:
        """Copies of those that are plain, by name."""
        if self.names is None:
            return plain_attributes(self.values)
        return plain_attributes({name: self.values[name] for name in self.names if name in self.values})

    def watch(self, advanced: Collection[str]) -> Callable[[], bool]:
        """A function that says whether they are as they are now; `advanced`: those that may change."""
        plain = {name: value for name, value in self.plain.items() if name not in advanced}
        names, seen, count = tuple(plain), list(plain.values()), len(self.values)
        held = None if self.holder is None else self.holder[self.name]

        def is_unchanged() -> bool:
            return (
                [self.values[name] for name in names] == seen
                and (self.names is not None or len(self.values) == count)
                and (self.holder is None or self.holder[self.name] is held)
            )

        return is_unchanged


def plain_attributes(values: Mapping[str, object]) -> dict[str, object]:
    """The variables that are plain, or short lists, tuples and mappings of plain values, by name."""
    copies = {name: _copied(value) for name, value in values.items() if name not in _OWN}
    return {name: value for name, value in copies.items() if value is not ABSENT}


def same(one: object, other: object) -> bool:
    """Whether two plain values are: of one type and equal, or neither a number."""
    return one is other or (type(one) is type(other) and (one == other or (one != one and other != other)))


def shown(value: object) -> str:
    """A plain value for people."""
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def settings_of(modules: Iterable[tuple[str, Module]], loss: Loss | None = None) -> Iterator[Settings]:
    """What the code of modules, by their titles, and of a loss reads beside the modules' own attributes."""
    held: set[int] = set()
    codes: set[object] = set()
    functions = [] if loss is None or isinstance(loss, torch.nn.Module) else [loss]
    for title, module in modules:
        yield from _objects(title, vars(module), held)
        kind = type(module)
        if not kind.__module__.startswith("torch."):
            methods = [each for name, each in vars(kind).items() if name == "forward" or not name.startswith("__")]
            functions += [kind.forward, *vars(module).values(), *methods]
    for function in functions:
        yield from _read_outside(function, codes)


def _objects(title: str, values: Mapping[str, object], held: set[int]) -> Iterator[Settings]:
    """The objects of plain values among some variables, each once, and those that they hold."""
    for name, value in values.items():
        if name not in _OWN and not isinstance(value, _PLAIN) and id(value) not in held and _is_settings(value):
            held.add(id(value))
            yield Settings(f"{name} of {title}", type(value), vars(value), None, values, name)
            yield from _objects(f"{name} of {title}", vars(value), held)


def _is_settings(value: object, depth: int = 0) -> bool:
    """Whether an object has variables, and nothing but plain values and such objects in them."""
    own = getattr(value, "__dict__", None)
    if not isinstance(own, dict) or not own or depth > _MOST_DEPTH or len(own) > _MOST_ENTRIES:
        return False
    if isinstance(value, torch.nn.Module | torch.Tensor | types.ModuleType):
        return False
    return all(_copied(part) is not ABSENT or _is_settings(part, depth + 1) for part in own.values())


def _read_outside(function: object, codes: set[object]) -> Iterator[Settings]:
    """Plain global variables and closures of a function, and of the functions of its file that it calls."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or function.__code__ in codes:
        return
    codes.add(function.__code__)
    known, place = function.__globals__, Path(function.__code__.co_filename).name
    for name in _globals_read(function.__code__):
        value = known.get(name)
        if isinstance(value, types.FunctionType) and value.__globals__ is known:
            yield from _read_outside(value, codes)
        elif name in known and not isinstance(value, _CODE) and _copied(value) is not ABSENT:
            title = f"a global of {place}"
            if (title, name) not in codes:
                codes.add((title, name))
                yield Settings(f"{title} ({name})", dict, known, (name,))
    cells = _Cells(function)
    if names := tuple(name for name in cells if not isinstance(cells.get(name), _CODE)):
        yield Settings(f"the closure of {function.__qualname__}", dict, cells, names)


class _Cells(Mapping[str, object]):
    """The variables of a function's closure as they are now."""

    def __init__(self, function: types.FunctionType) -> None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        self._cells = {name: cell for name, cell in cells if name != "__class__"}

    def __getitem__(self, name: str) -> object:
        try:
            return self._cells[name].cell_contents
        except ValueError:  # nothing in it yet
            return ABSENT

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)


@lru_cache(maxsize=4096)
def _globals_read(code: types.CodeType) -> tuple[str, ...]:
    """The names that code looks up among global variables, and code within it."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return tuple(sorted(own.union(*map(_globals_read, inner))))


def _copied(value: object) -> object:
    """A plain value; copied where it may change in place."""
    if isinstance(value, _PLAIN):
        return value
    if (
        not isinstance(value, tuple | list | dict)
        or type(value) not in (tuple, list, dict)
        or len(value) > _MOST_ENTRIES
    ):
        return ABSENT
    if isinstance(value, dict):
        pairs = {key: _copied(part) for key, part in value.items()}
        return pairs if all(isinstance(key, _PLAIN) and part is not ABSENT for key, part in pairs.items()) else ABSENT
    parts = [_copied(part) for part in value]
    return ABSENT if any(part is ABSENT for part in parts) else type(value)(parts)


# -- what a forward pass must not do -----------------------------------------------------------------------------------


@contextmanager
def nothing_drawn(model: Module) -> Iterator[None]:
    """Raise `InputError` where the block draws random numbers in Python: a plan would keep the first ones for ever."""
    before = {title: (state(), state) for title, state in _generators(model)}
    yield
    for title, (drawn, state) in before.items():
        if state() != drawn:
            rule = f"capture: the model draws from {title}, and a plan would keep what is drawn first"
            raise InputError(f"{rule}; draw by torch and choose by torch.where, or give what is drawn as an argument")


def _generators(model: Module) -> Iterator[tuple[str, Callable[[], object]]]:
    """Generators of random numbers, and what gives the state of each."""
    yield "Python's random", random.getstate
    yield "NumPy's random", lambda: pickle.dumps(np.random.get_state())  # noqa: NPY002
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, random.Random | np.random.Generator | np.random.RandomState):
                title = f"{key} of module {name!r}" if name else f"{key} of the model"
                yield title, partial(pickle.dumps, value)


@contextmanager
def reads_of(
    modules: Mapping[str, Module], loss: Loss | None, names: Collection[tuple[str, str]]
) -> Iterator[set[str]]:
    """Collect which of some numbers, by title and name, code in the block decides by; all are as before after it."""
    places = {title: vars(module) for title, module in modules.items()}
    places.update({each.title: each.values for each in settings_of(modules.items(), loss)})
    seen: set[str] = set()
    numbers = [(places.get(title), name, f"{name} of {title}") for title, name in sorted(names)]
    held = [(values, name, values[name], said) for values, name, said in numbers if values and name in values]
    try:
        for values, name, number, said in held:
            if type(number) in (int, float) and isinstance(values, dict):
                values[name] = _noting(number, seen, said)
        yield seen
    finally:
        for values, name, number, _ in held:
            if isinstance(values, dict):
                values[name] = number


_GOES_ON = ("__add__", "__radd__", "__sub__", "__mul__", "__rmul__", "__truediv__", "__pow__")
"""By which a number goes on from step to step, and is another still."""
_DECIDES = (
    "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__", "__hash__", "__mod__", "__floordiv__",
    "__divmod__", "__int__", "__float__", "__index__", "__floor__", "__ceil__", "__trunc__", "__round__",
)  # fmt: skip


def _noting(number: float, seen: set[str], said: str) -> float:
    """A number that notes when code decides by it; what is computed of it does so, too."""
    kind = type(number)

    def going(name: str) -> Callable[..., object]:
        def method(own: float, *others: object) -> object:
            found = getattr(kind, name)(own, *others)
            return _noting(found, seen, said) if type(found) in (int, float) else found

        return method

    def deciding(name: str) -> Callable[..., object]:
        def method(own: float, *others: object) -> object:
            seen.add(said)
            return getattr(kind, name)(own, *others)

        return method

    methods = {
        **{name: going(name) for name in _GOES_ON if hasattr(kind, name)},
        **{name: deciding(name) for name in _DECIDES if hasattr(kind, name)},
    }
    made: float = type(kind.__name__, (kind,), methods)(number)
    return made
