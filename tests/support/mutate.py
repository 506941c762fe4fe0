"""Files that are changed at random, by seed: the structure of JSON, the bytes of anything."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, False, "", "x", "0x5", "-1", "1e999", "NaN", "1MB", "8GiB", "9" * 400, "é\u0000\ud7ff\U0001f600",
    "a" * 5000,
    0, 1, -1, 2, 7, 0.5, -0.5, 1e-308, 1e308, -1e308, 2**31, 2**53, 2**62, 2**63, 2**64, 10**30, -(10**30), 10**400,
    [], {}, [[]], [{}], [0], [-1], [0, 0], {"x": 1}, [None], [1e308] * 3, list(range(2000)), [0] * 3000,
)  # fmt: skip
"""What may stand in place of any value."""

LITERALS = ("NaN", "Infinity", "-Infinity", "1e999", "-0.0", "1E400", "0x10", "[" * 3000, '{"a":' * 3000, "9" * 5000)
"""What `json.dumps` would not write, in place of a value."""

_MARK = "@@ a literal @@"


def mutated_jsons(text: str, seed: int, count: int) -> Iterator[bytes]:
    """So many files, each with one to four changes to the object in `text`, some with changed bytes besides."""
    chance = Random(seed)
    for _ in range(count):
        data = json.loads(text)
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            data = _with_change(data, chance)
        changed = json.dumps(data).replace(f'"{_MARK}"', chance.choice(LITERALS)).encode()
        yield mutated_bytes(changed, chance) if chance.random() < 0.15 else changed


def mutated_bytes(data: bytes, chance: Random) -> bytes:
    """A copy that is cut, flipped, added to, or has a part twice or not at all."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8])):
        first = chance.randrange(len(out) + 1)
        last = min(len(out), first + chance.choice([1, 1, 2, 16, 200]))
        kind = chance.choice(["flip", "flip", "insert", "delete", "double", "cut"])
        if kind == "flip" and first < last:
            out[first] ^= 1 << chance.randrange(8)
        elif kind == "insert":
            out[first:first] = chance.choice(
                [b"\0", b"\xff", b"-", b'"', b"{", b"]", b"9", b",", b"<", b"\xef\xbb\xbf"]
            )
        elif kind == "delete":
            del out[first:last]
        elif kind == "double":
            out[first:first] = out[first:last]
        elif kind == "cut" and chance.random() < 0.3:
            del out[first:]
    return bytes(out)


def _with_change(data: Any, chance: Random) -> Any:
    """The object with one change at a random place, reached level by level so that no long list hides the rest."""
    steps = chance.choice([1, 2, 2, 3, 3, 4, 5, 6])
    inside, path = data, []
    while isinstance(inside, (dict, list)) and inside and len(path) < steps:
        key = chance.choice(sorted(inside)) if isinstance(inside, dict) else chance.randrange(len(inside))
        path.append((inside, key))
        inside = inside[key]
    if not path or chance.random() < 0.005:
        return copy.deepcopy(chance.choice(VALUES))
    holder, key = path[-1]
    change = chance.choice(_OF_DICT if isinstance(holder, dict) else _OF_LIST)
    change(holder, key, chance)
    return data


def _other_value(holder: Any, key: Any, chance: Random) -> None:
    holder[key] = copy.deepcopy(chance.choice(VALUES))


def _other_number(holder: Any, key: Any, chance: Random) -> None:
    """Numbers stay numbers: what readers let through is what must not break those who use it."""
    value = holder[key]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
        holder[key] = chance.choice([-value, value + 1, value - 1, value * 2, value / 2, value * 1e9, value * 1e300, 0])
    elif isinstance(value, str):
        holder[key] = chance.choice([value * 2, value[:-1], value + "\n", " " + value, "-" + value, value + "\ud83d"])
    else:
        _other_value(holder, key, chance)


def _literal(holder: Any, key: Any, chance: Random) -> None:
    holder[key] = _MARK


def _drop(holder: Any, key: Any, chance: Random) -> None:
    del holder[key]


def _rename(holder: Any, key: Any, chance: Random) -> None:
    holder[chance.choice([key + "x", key[:-1], key.upper(), "", "é", "__class__", "-1", "7", "9" * 4400])] = holder.pop(
        key
    )


def _swap(holder: Any, key: Any, chance: Random) -> None:
    other = chance.choice(sorted(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
    holder[key], holder[other] = holder[other], holder[key]


def _deepen(holder: Any, key: Any, chance: Random) -> None:
    for _ in range(chance.choice([1, 2, 200])):
        holder[key] = [holder[key]]


def _double(holder: Any, key: Any, chance: Random) -> None:
    holder[key:key] = [holder[key]] * chance.choice([1, 1, 2, 500])


def _add(holder: Any, key: Any, chance: Random) -> None:
    holder.setdefault(chance.choice(["x", "name", "power_w", "", key + "_"]), copy.deepcopy(chance.choice(VALUES)))


_ANYWHERE: list[Callable[[Any, Any, Random], None]] = [
    _other_value, _other_value, _other_number, _other_number, _other_number, _literal, _drop, _swap, _deepen,
]  # fmt: skip
_OF_DICT = [*_ANYWHERE, _rename, _add]
_OF_LIST = [*_ANYWHERE, _double]
