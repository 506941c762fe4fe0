"""Write a TACCL-EF program as the XML that the runtimes read.

Their parsers are written by hand: no XML declaration, no tabs, double quotes, all attributes of an element on one line
with single spaces between them, no entities. Every attribute that either runtime requires is written.
"""

from __future__ import annotations

import re
from pathlib import Path

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.taccl_ef.program import MAX_NAME, MAX_VALUE, Gpu, Program, Step, ThreadBlock

__all__ = ["write_program", "xml_text"]

PLAIN = re.compile(r"[A-Za-z0-9 _.,:;+*/()\[\]@#=-]*")
"""What a value may hold: the parsers know no entities, so nothing that XML would escape."""


def xml_text(program: Program) -> str:
    """The file's text; the same program gives the same bytes.

    Raises `InputError` for a name or other text that the parsers would misread.
    """
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
    lines = [f"<algo {' '.join(attributes)}>"]
    for gpu in program.gpus:
        _gpu(gpu, lines)
    lines.append("</algo>\n")
    return "\n".join(lines)


def write_program(path: Path | str, program: Program) -> None:
    """Write the file; an existing one is replaced only by a complete new one.

    Raises `InputError` as `xml_text` does, or where the file can't be written.
    """
    write_text(Path(path), xml_text(program))


def _gpu(gpu: Gpu, lines: list[str]) -> None:
    chunks = f'i_chunks="{gpu.i_chunks}" o_chunks="{gpu.o_chunks}" s_chunks="{gpu.s_chunks}"'
    lines.append(f'  <gpu id="{gpu.id}" {chunks}>')
    for block in gpu.threadblocks:
        _block(block, lines)
    lines.append("  </gpu>")


def _block(block: ThreadBlock, lines: list[str]) -> None:
    lines.append(f'    <tb id="{block.id}" send="{block.send}" recv="{block.recv}" chan="{block.chan}">')
    lines += [_step(step) for step in block.steps]
    lines.append("    </tb>")


def _step(step: Step) -> str:
    return (
        f'      <step s="{step.s}" type="{step.type}" srcbuf="{step.srcbuf}" srcoff="{step.srcoff}" '
        f'dstbuf="{step.dstbuf}" dstoff="{step.dstoff}" cnt="{step.cnt}" '
        f'depid="{step.depid}" deps="{step.deps}" hasdep="{step.hasdep:d}"/>'
    )


def _plain(title: str, value: str, limit: int = MAX_VALUE) -> str:
    if len(value) > limit:
        raise InputError(f"taccl-ef {title}: must have at most {limit} characters, got {len(value)}: {value[:20]!r}...")
    if not PLAIN.fullmatch(value):
        raise InputError(f"taccl-ef {title}: must be plain ASCII without quotes, tabs, <, > or &, got {value!r}")
    return value
