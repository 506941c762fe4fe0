"""Files that are made to break their reader, by container, and the words of the one line that refuses each.

`python hostile_files.py FOLDER` reads each in a process of its own and prints what that took, one JSON line a file.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from forked_reads import in_fork, load, loaded, used
from lying_archives import archive_of, header_of, members_of
from more_read_cases import ALL, use_description
from read_cases import command, use_trace, void

from gapless.io.text_file import load_toml
from gapless.profiles.cache.profile_file import read_cache_profile
from gapless.profiles.heads.profile_file import read_head_profile
from gapless.profiles.sparsity.index_file import read_index_sets

BIG = 10**7 - 1000
COUNT = 2**28
SIZE = header_of("'|u1'", f"({COUNT},)")


@dataclass(frozen=True)
class Hostile:
    """A file: its name, what makes it of the bytes of a run, what reads it, and what is said of it."""

    file: str
    content: Callable[[bytes], bytes]
    use: Callable[[Path], None]
    said: str


def _check(path: Path) -> None:
    command("check", str(path))


def _zeros(name: str, head: bytes, count: int) -> bytes:
    """An archive of one member, `head` and so many zeros, written piece by piece."""
    stream = io.BytesIO()
    archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open(name, "w", force_zip64=True) as member:
        member.write(head)
        for _ in range(count >> 20):
            member.write(bytes(2**20))
    return stream.getvalue()


def _run(said: str, use: Callable[[Path], None] = _check, **members: bytes) -> Hostile:
    """A run with other members; `_` stands for the window's folder."""
    others = {name.replace("_", "00000000/", 1) + ".npy": data for name, data in members.items()}
    return Hostile("run.npz", lambda run: archive_of({**members_of(run), **others}), use, said)


def _array(values: object) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(values))
    return stream.getvalue()


def _patched(at: int, value: int) -> Callable[[bytes], bytes]:
    """A byte of the first record of the directory."""

    def change(run: bytes) -> bytes:
        place = run.index(b"PK\x01\x02") + at
        return run[:place] + bytes([value]) + run[place + 1 :]

    return change


def _text(file: str, text: str, said: str, use: Callable[[Path], None] = _check) -> Hostile:
    return Hostile(file, lambda run: text.encode(), use, said)


def _json(text: str, said: str) -> Hostile:
    return _text("plan.json", text, said)


def _toml(text: str, said: str) -> Hostile:
    return _text("grid.toml", text, said, lambda path: void(load_toml(path)))


def _many(run: bytes) -> bytes:
    """A directory of 200,000 members."""
    record = bytearray(run[run.index(b"PK\x01\x02") :][:47])
    record[20:46] = (1).to_bytes(4, "little") * 2 + (1).to_bytes(2, "little") + bytes(16)
    records = bytes(record) * 210_000
    end = b"PK\x05\x06" + bytes(8) + len(records).to_bytes(4, "little") + bytes(6)
    return records + end


def _graph(path: Path) -> None:
    command("solve", "monet", "--graph", str(path), "--budget", "1x", "--json")


_INFLATED, _MEMORY, _DEEP = "of space once inflated", "of memory", "nested too deeply"
HOSTILE: dict[str, Hostile] = {
    # -- .npz
    "zeros as a run": Hostile("run.npz", lambda run: _zeros("meta.npy", SIZE, COUNT), _check, _INFLATED),
    "zeros as sets": Hostile(
        "s.npz", lambda run: _zeros("meta.npy", SIZE, COUNT), lambda path: void(read_index_sets(path)), _INFLATED
    ),
    "zeros as heads": Hostile(
        "h.npz", lambda run: _zeros("meta.npy", SIZE, COUNT), lambda path: void(read_head_profile(path)), _INFLATED
    ),
    "zeros as a cache": Hostile(
        "c.npz", lambda run: _zeros("meta.npy", SIZE, COUNT), lambda path: void(read_cache_profile(path)), _INFLATED
    ),
    "zeros as a trace": Hostile("t.npz", lambda run: _zeros("ids.npy", SIZE, COUNT), use_trace, _INFLATED),
    "size that isn't there": _run("the file has 9", meta=header_of("'|u1'", "(900000,)") + b"123456789"),
    "shape of no bytes": _run("too large for the file", meta=header_of("'<U0'", f"({10**15},)")),
    "negative shape": _run("too large for the file", meta=header_of("'|u1'", "(-1,)")),
    "long header": _run("at most 10000 bytes", meta=b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{"),
    "header of brackets": _run("array of NumPy", meta=b"\x93NUMPY\x01\x00\x28\x23" + b"(" * 9000),
    "header of signs": _run("array of NumPy", meta=b"\x93NUMPY\x01\x00\x28\x23" + b"-" * 9000),
    "pickle": _run("is pickled", meta=header_of("'|O'", "(1,)") + pickle.dumps([None])),
    "no array": _run("array of NumPy", _counts=b"hello"),
    "text for an array": _run("must be uint8 in 1 dimensions", meta=_array(["a"])),
    "deep text": _run(_DEEP, meta=_array(np.frombuffer(b"[" * 5000, dtype=np.uint8))),
    "counts of another shape": _run("counts: must have 35 for each batch, got 2", _counts=_array([[1, 2]] * 6)),
    "counts of other rows": _run("counts: ", _counts=_array([[3] * 33] * 6)),
    "infinite costs": _run("measured: must be >= 0 and finite", _measured=_array(np.full((6, 3), np.inf))),
    "cut or not": _run("is_cut: must be 0 or 1, got 7", _is_cut=_array(np.full(6, 7, dtype=np.uint8))),
    "array of nothing": _run("is no array of a run", _more=_array([1])),
    "users of many rows": _run("users: must have as many", _users=header_of("'|u1'", f"({2**24}, 1)") + bytes(2**24)),
    "encrypted": Hostile("run.npz", _patched(8, 1), _check, "is encrypted"),
    "unknown method": Hostile("run.npz", _patched(10, 99), _check, "is of method 99"),
    "deflated otherwise": Hostile(
        "run.npz", lambda run: archive_of(members_of(run), zipfile.ZIP_BZIP2), _check, "is of method 12"
    ),
    "corrupt stream": Hostile("run.npz", lambda run: run[:900] + b"\xff" * 40 + run[940:], _check, "not readable"),
    "many members": Hostile("run.npz", _many, _check, "meta"),
    "cut short": Hostile("run.npz", lambda run: run[:-30], _check, "it is not finished"),
    # -- JSON
    "brackets": _json("[" * BIG, _MEMORY),
    "some brackets": _json("[" * 900, "(not readable|not JSON|too deeply)"),
    "150 brackets": _json('{"a": ' + "[" * 150 + "]" * 150 + "}", _DEEP),
    "empty lists": _json('{"a": [' + "[]," * (BIG // 3) + "0]}", _MEMORY),
    "empty objects": _json('{"a": [' + "{}," * (BIG // 3) + "0]}", _MEMORY),
    "short texts": _json('{"a": [' + '"ab",' * (BIG // 5) + "0]}", _MEMORY),
    "many names": _json("{" + ",".join(f'"{k:x}":1' for k in range(BIG // 11)) + "}", _MEMORY),
    "digits": _json('{"a": ' + "9" * 10**6 + "}", "4300 digits"),
    "NaN": _json('{"a": NaN}', "finite"),
    "infinite in a list": _json('{"a": [1, -1e999]}', "finite"),
    "twice": _json('{"a": 1, "a": 2}', "stands twice"),
    "half a pair": _json('{"a": "\\ud800"}', "surrogate"),
    "mark": _json("\ufeff{}", "byte order mark"),
    "latin": Hostile("plan.json", lambda run: b'{"a": "\xe9"}', _check, "UTF-8"),
    "comments": _json("{" + "//\n" * 10**6 + "}", "missing"),
    "gzip of spaces": Hostile("g.json.gz", lambda run: gzip.compress(b" " * 2**26, 1), _graph, "at most 10 MB"),
    "cut gzip": Hostile("g.json.gz", lambda run: gzip.compress(b"{}" * 99)[:-9], _graph, "not readable"),
    # -- XML
    "entities": _text(
        "nccl.xml", '<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><system>&d;</system>', "no entities",
        use_description,
    ),
    "deep elements": _text("nccl.xml", "<system>" + "<a>" * 5000, "nested at most 200", use_description),
    "many elements": _text("nccl.xml", "<system>" + "<a/>" * (BIG // 4), _MEMORY, use_description),
    "many attributes": _text(
        "nccl.xml", "<system " + " ".join(f'a{k}=""' for k in range(800_000)) + "/>", _MEMORY, use_description
    ),
    "attributes of TACCL-EF": _text(
        "c.xml", "<algo " + " ".join(f'a{k}=""' for k in range(800_000)) + "></algo>", "at most 16 attributes"
    ),
    "tags of TACCL-EF": _text("c.xml", "<algo>" + "<x/>" * (BIG // 4), "missing"),
    "many GPUs": _text(
        "nccl.xml",
        "<system><cpu>" + "".join(f'<pci busid="{k}"><gpu/></pci>' for k in range(9000)) + "</cpu></system>",
        "at most 256 GPUs", use_description,
    ),
    # -- tables
    "many NVLinks": _text("smi.txt", f"\tGPU0\tGPU1\nGPU0\tX\tNV{'9' * 5000}\nGPU1\tNV1\tX\n", "NV#", use_description),
    "long line": _text("t.csv", "user,item\n" + "," * 2**21, "fewer than 1048576 characters", use_trace),
    "long cell": _text("t.csv", 'user,item\n1,"' + "\n" * 2**18, "field limit", use_trace),
    "wide rows": _text("t.csv", "user,item\n" + ("ab," * 300_000 + "\n") * 10, "must have 2 fields", use_trace),
    "gzip of a line": Hostile(
        "t.csv.gz", lambda run: gzip.compress(b"user,item\n" + b"," * 2**26, 1), use_trace, "fewer than 1048576"
    ),
    "long key": _toml("a." * 10**5 + "a = 1", "fewer than 32 parts"),
    "deep TOML": _toml("a = " + "[" * 10**5, _DEEP),
    "digits of TOML": _toml("a = " + "9" * 10**6, "4300 digits"),
    "large TOML": _toml("a = 1\n" * 10**6, "at most 2.097 MB"),
}  # fmt: skip


def main() -> None:
    folder = Path(sys.argv[1])
    source = folder / "source.npz"

    def make() -> tuple[str, str]:
        ALL["plan-bagpipe"].make(source)
        _check(source)
        return "taken", loaded()

    load(in_fork(make, "source", 0))
    run = source.read_bytes()
    for number, (name, hostile) in enumerate(HOSTILE.items()):
        path = folder / str(number) / hostile.file
        path.parent.mkdir()

        def write(hostile: Hostile = hostile, path: Path = path) -> tuple[str, str]:
            path.write_bytes(hostile.content(run))
            return "written", ""

        assert in_fork(write, name, number).kind == "written", name
        outcome = in_fork(lambda hostile=hostile, path=path: used(hostile.use, path), name, number)  # type: ignore[misc]
        print(json.dumps(asdict(outcome)), flush=True)
        path.unlink()


if __name__ == "__main__":
    main()
