"""Write a TACCL-EF program as the XML that the runtimes read.

Their parsers are written by hand: no XML declaration, no tabs, double quotes, all attributes of an element on one line
with single spaces between them, no entities. Every attribute that either runtime requires is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gapless.errors import InputError
from gapless.io.atomic import write_lines
from gapless.io.taccl_ef.program import MAX_NAME, MAX_VALUE, Gpu, Program, Step, ThreadBlock

__all__ = ["rank_path", "write_program", "xml_lines", "xml_text"]

PLAIN = re.compile(r"[A-Za-z0-9 _.,:;+*/()\[\]@#=-]*")
"""What a value may hold: the parsers know no entities, so nothing that XML would escape."""


def xml_text(program: Program) -> str:
    """The file's text; the same program gives the same bytes.

    Raises `InputError` for a name or other text that the parsers would misread.
    """
    return "".join(xml_lines(program))


def xml_lines(program: Program) -> Iterator[str]:
    """The same, piece by piece."""
    attributes = [
        f'name="{_plain("name", program.name, MAX_NAME)}"',
        f'proto="{_plain("proto", program.proto)}"',
        f'nchannels="{program.nchannels}"',
        f'nchunksperloop="{program.nchunksperloop}"',
        f'ngpus="{program.ngpus}"',
        f'coll="{_plain("coll", program.coll)}"',
        f'inplace="{program.inplace:d}"',
        f'outofplace="{program.outofplace:d}"',
        f'minBytes="{program.min_bytes}"',
        f'maxBytes="{program.max_bytes}"',
        f'redop="{_plain("redop", program.redop)}"',
    ]
    if program.nthreads is not None:
        attributes.append(f'nthreads="{program.nthreads}"')
    yield f"<algo {' '.join(attributes)}>\n"
    for gpu in program.gpus:
        yield from _gpu(gpu)
    yield "</algo>\n"


def write_program(path: Path | str, program: Program, per_rank: bool = False) -> None:
    """Write the file; an existing one is replaced only by a complete new one.

    `per_rank`: one file a rank, which is named as `rank_path` has it. Raises `InputError` as `xml_text` does, or where
    a file can't be written.
    """
    if not per_rank:
        write_lines(path, xml_lines(program))
        return
    for gpu in program.gpus:
        write_lines(rank_path(path, gpu.id), xml_lines(replace(program, gpus=(gpu,))))


def rank_path(path: Path | str, rank: int) -> Path:
    """Where a rank's own file lies: plan.7.xml for plan.xml."""
    whole = Path(path)
    return whole.with_name(f"{whole.stem}.{rank}{whole.suffix}")


def _gpu(gpu: Gpu) -> Iterator[str]:
    chunks = f'i_chunks="{gpu.i_chunks}" o_chunks="{gpu.o_chunks}" s_chunks="{gpu.s_chunks}"'
    yield f'  <gpu id="{gpu.id}" {chunks}>\n'
    for block in gpu.threadblocks:
        yield _block(block)
    yield "  </gpu>\n"


def _block(block: ThreadBlock) -> str:
    head = f'    <tb id="{block.id}" send="{block.send}" recv="{block.recv}" chan="{block.chan}">\n'
    return "".join([head, *map(_step, block.steps), "    </tb>\n"])


def _step(step: Step) -> str:
    return (
        f'      <step s="{step.s}" type="{step.type}" srcbuf="{step.srcbuf}" srcoff="{step.srcoff}" '
        f'dstbuf="{step.dstbuf}" dstoff="{step.dstoff}" cnt="{step.cnt}" '
        f'depid="{step.depid}" deps="{step.deps}" hasdep="{step.hasdep:d}"/>\n'
    )


def _plain(title: str, value: str, limit: int = MAX_VALUE) -> str:
    if len(value) > limit:
        raise InputError(f"taccl-ef {title}: must have at most {limit} characters, got {len(value)}: {value[:20]!r}...")
    if not PLAIN.fullmatch(value):
        raise InputError(f"taccl-ef {title}: must be plain ASCII without quotes, tabs, <, > or &, got {value!r}")
    return value
