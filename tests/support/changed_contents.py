"""Random changes of what files hold: `changed(content, seed, count)` gives so many changed contents of one kind."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from changed_files import mutate
from damaged_texts import damaged
from mutate import mutated_bytes, mutated_jsons

Changed = Callable[[bytes, int, int], Iterator[bytes]]


def changed_jsons(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Changes of the object in the file."""
    return mutated_jsons(content.decode(), seed, count)


def changed_bytes(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Changes of bytes, inside the gzip if it is one, or of the gzip."""
    chance, packed = Random(seed), content[:2] == b"\x1f\x8b"
    for _ in range(count):
        if packed and chance.random() < 0.7:
            yield gzip.compress(mutated_bytes(gzip.decompress(content), chance), compresslevel=1)
        else:
            yield mutated_bytes(content, chance)


def changed_headers(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Changes of an array's bytes, most of them in its header."""
    chance, head = Random(seed), 128
    for _ in range(count):
        if chance.random() < 0.3:
            shape = chance.choice(
                ["(10**9, 2)", "(2, 1000000000)", "(-1, 2)", "(0, 2)", "(2,)", "()", "(True, 2)", "x"]
            )
            kind = chance.choice(["'<i8'", "'>u2'", "'|O'", "'<f8'", "'<U4'", "'|V8'", "[('a', '<i4')]", "'x'", "None"])
            order = chance.choice(["True", "False", "3"])
            text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".ljust(head - 11) + "\n"
            yield content[:8] + len(text).to_bytes(2, "little") + text.encode() + content[head:]
        else:
            yield (
                mutated_bytes(content[:head], chance) + content[head:]
                if chance.random() < 0.7
                else mutated_bytes(content, chance)
            )


def changed_texts(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Damage to XML."""
    for number in range(count):
        text = damaged(content.decode(), Random(seed * 1_000_000 + number))
        yield text.encode("utf-8", "surrogatepass")


def changed_runs(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Changes of arrays, of the JSON text, and of bytes."""

    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.npz", Path(folder) / "target.npz"
        source.write_bytes(content)
        for _ in range(count):
            mutate(source, target, chance)
            yield target.read_bytes()
