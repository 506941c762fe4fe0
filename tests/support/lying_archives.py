"""Archives that are changed at random so that directory, headers and members tell different things."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from random import Random

from changed_contents import changed_headers, changed_runs

NUMBERS = (0, 1, 2, 7, 8, 12, 99, 255, 2**15, 2**16 - 1, 2**20, 2**30, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
_DIRECTORY = {8: "H", 10: "H", 16: "I", 20: "I", 24: "I", 28: "H", 30: "H", 32: "H", 42: "I"}
_LOCAL = {6: "H", 8: "H", 14: "I", 18: "I", 22: "I", 26: "H", 28: "H"}
_END = {8: "H", 10: "H", 12: "I", 16: "I", 20: "H"}
FIELDS = {b"PK\x01\x02": _DIRECTORY, b"PK\x03\x04": _LOCAL, b"PK\x05\x06": _END}
"""Where the numbers of a record stand, behind its first byte."""


def changed_archives(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Half of them lie of sizes, methods, places and types; the others have other arrays, or changed bytes."""
    chance, others = Random(seed), changed_runs(content, seed, count)
    for _ in range(count):
        other = next(others)
        yield other if chance.random() < 0.4 else chance.choice(_LIES)(content, chance)


def members_of(content: bytes) -> dict[str, bytes]:
    """The members of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method, compresslevel=1 if method != zipfile.ZIP_LZMA else None) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def header_of(kind: str, shape: str) -> bytes:
    """The header of an array that says this of itself."""
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _record(content: bytes, chance: Random) -> bytes:
    """A number in a record of the zip."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 3])):
        mark = chance.choice(sorted(FIELDS))
        places = [place for place in range(len(data)) if data.startswith(mark, place)]
        if places:
            at, code = chance.choice(sorted(FIELDS[mark].items()))
            place, size = chance.choice(places) + at, struct.calcsize(code)
            value = chance.choice([*NUMBERS, len(data), chance.getrandbits(16)]) % 256**size
            data[place : place + size] = struct.pack(f"<{code}", value)[: len(data[place : place + size])]
    return bytes(data)


def _header(content: bytes, chance: Random) -> bytes:
    """The header of an array."""
    members = members_of(content)
    name = chance.choice(sorted(members))
    members[name] = next(changed_headers(members[name], chance.getrandbits(30), 1))
    return archive_of(members)


def _bomb(content: bytes, chance: Random) -> bytes:
    """An array of many zeros."""
    members = members_of(content)
    count = chance.choice([2**16, 2**20, 2**24, 2**26, 2**27])
    shape = chance.choice([f"({count},)", f"({count // 8}, 8)", f"(1, {count})", f"({count // 16}, 2)"])
    kind = "'<i8'" if shape.endswith(" 2)") else "'|u1'"
    members[chance.choice(sorted(members))] = header_of(kind, shape) + bytes(count)
    return archive_of(members)


def _member(content: bytes, chance: Random) -> bytes:
    """A member that is something else, twice there, or named otherwise."""
    members = members_of(content)
    name, other = chance.choice(sorted(members)), chance.choice(sorted(members))
    pickled = header_of("'|O'", "(1,)") + pickle.dumps([None])
    deep = header_of("'|u1'", "(4000,)") + b'{"a":' + b"[" * 3995
    contents = [b"", b"text", b"{}", members[other], pickled, deep, members[name][:-1], members[name] + b"\0"]
    members[name] = chance.choice(contents)
    if chance.random() < 0.3:
        named = [
            "meta",
            "../meta.npy",
            "\u00e9.npy",
            "x" * 3000,
            "99999999/rows.npy",
            ".npy",
            "a/b/c.npy",
            name.upper(),
        ]
        members[chance.choice(named)] = members.pop(other)
    data = archive_of(members)
    if chance.random() < 0.2:
        stream = io.BytesIO(data)
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "a") as archive:
            warnings.simplefilter("ignore")  # of the name that stands twice
            archive.writestr(name, members.get(name, b""))
        data = stream.getvalue()
    return data


def _method(content: bytes, chance: Random) -> bytes:
    """Another compression."""
    return archive_of(members_of(content), chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))


_LIES: list[Callable[[bytes, Random], bytes]] = [_record, _record, _record, _header, _header, _bomb, _member, _method]
