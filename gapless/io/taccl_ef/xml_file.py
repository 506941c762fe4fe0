"""Read and write TACCL-EF files, as the runtimes read them.

The runtimes' parsers are written by hand and misread what an XML library takes in its stride: a tab, single quotes, an
attribute on a second line. So this reader scans by their rules. What they misread or refuse is an `InputError`, one
line with file, line, element, attribute, rule and value; what they skip is a warning; what only one of them requires
may be missing, and the program says so. Entities, declarations and DOCTYPE are refused, so nothing expands.

What is written has no declaration, no tabs, double quotes, all attributes of an element on one line with single spaces
between them. Every attribute that either runtime requires is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from gapless.errors import InputError
from gapless.io.atomic import write_lines
from gapless.io.taccl_ef.program import (
    BUFFERS,
    DEFAULT_MAX_BYTES,
    MAX_ATTRIBUTES,
    MAX_NAME,
    MAX_VALUE,
    STEP_TYPES,
    Gpu,
    Program,
    Step,
    ThreadBlock,
)
from gapless.io.text_file import load_text

__all__ = ["parse_xml", "rank_path", "read_program", "write_program", "xml_lines", "xml_text"]


ATTRIBUTE = r'[A-Za-z_][A-Za-z0-9_.-]*="[^"<\n\r\t]*"'
MOST_MATCHED = 256
"""Attributes of a tag that are looked at."""
MOST_WARNINGS = 100_000
TOKEN = re.compile(
    rf"[ \n\r]*(?:<!--.*?-->|<(/?)([A-Za-z_][A-Za-z0-9_.-]*)((?: +{ATTRIBUTE}){{0,{MOST_MATCHED}}}) *(/?)>)", re.DOTALL
)
PAIR = re.compile(r'([A-Za-z_][A-Za-z0-9_.-]*)="([^"]*)"')
WORD = re.compile(r"[ >/\n\r]")
NUMBER = re.compile(r"-?[0-9]{1,19}")
PARENT = {"algo": "", "gpu": "algo", "tb": "gpu", "step": "tb"}
REQUIRED = {
    "algo": ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace"),
    "gpu": ("id", "i_chunks", "o_chunks", "s_chunks"),
    "tb": ("id", "send", "recv", "chan"),
    "step": ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"),
}
OPTIONAL = {
    "algo": ("name", "outofplace", "minBytes", "maxBytes", "redop", "nthreads"),
    "gpu": (),
    "tb": (),
    "step": (),
}
BY_RUNTIME = ("name", "outofplace", "minBytes", "maxBytes")
"""Those of `<algo>` that one of the runtimes requires."""
COMPLAINTS = (
    ("<?", "an XML declaration is not allowed: the runtimes' parsers refuse it"),
    ("<!DOCTYPE", "a DOCTYPE is not allowed"),
    ("<!--", "a comment is not closed"),
    ("<!", "only comments may start with '<!'"),
)


def read_program(path: Path | str) -> tuple[Program, list[str]]:
    """The program in a file, and the warnings; raises `InputError` as `parse_xml` does, or for an unreadable file."""
    return parse_xml(load_text(path), str(path))


def parse_xml(text: str, source: str) -> tuple[Program, list[str]]:
    """The program in an XML text, and the warnings, each one line; `source` names the text in messages.

    Raises `InputError` where a runtime would refuse or misread the text. What a program must obey beyond its spelling
    is the business of `verify`.
    """
    reader = _Reader(text, source)
    root = reader.root()
    return _program(reader, root), reader.warnings


@dataclass
class _Element:
    """A known element while it is read; `where` is its place in words, `line` where it starts."""

    tag: str
    line: int
    values: dict[str, str]
    where: str
    children: list[_Element] = field(default_factory=list)


class _Reader:
    """The scan of one text: builds the tree of known elements and keeps the warnings."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source
        self.warnings: list[str] = []
        self.at, self.line = 0, 1

    def fail(self, line: int, message: str) -> InputError:
        return InputError(f"{self.source}:{line}: {message}")

    def warn(self, line: int, message: str) -> None:
        self.warnings.append(f"{self.source}:{line}: {message}")
        if len(self.warnings) > MOST_WARNINGS:
            raise self.fail(line, f"must hold at most {MOST_WARNINGS} things that the runtimes skip")

    def root(self) -> _Element:
        """The one algo element; open elements are on a stack, unknown ones as None."""
        stack: list[tuple[str, _Element | None]] = []
        root: _Element | None = None
        end = len(self.text.rstrip(" \n\r"))
        while self.at < end:
            closing, tag, attributes, empty = self.token()
            if not tag:
                continue
            if closing:
                self.close(stack, tag)
                continue
            element = self.open(stack, root, tag, attributes)
            if element is not None and tag == "algo":
                root = element
            if not empty:
                stack.append((tag, element))
        if stack:
            raise self.fail(self.line, f"<{stack[-1][0]}> is not closed")
        if root is None:
            raise self.fail(self.line, "there must be one <algo> element, got none")
        return root

    def token(self) -> tuple[str, str, str, str]:
        """The next tag in its four parts; a comment has an empty tag. `line` becomes the line on which it starts."""
        match = TOKEN.match(self.text, self.at)
        if match is None:
            raise self.complaint()
        if not match.group(2):
            self.comment(match.group().lstrip(" \n\r"))
        start = match.start(2) if match.group(2) else match.end()
        self.line += self.text.count("\n", self.at, start)
        self.at = match.end()
        return match.group(1) or "", match.group(2) or "", match.group(3) or "", match.group(4) or ""

    def comment(self, text: str) -> None:
        """The runtimes' parsers read the first word of a comment as they read an element's name."""
        word = WORD.split(text, maxsplit=1)[0]
        if "=" in word:
            raise self.fail(self.line, f"a comment's first word must hold no '=', got {word[:60]!r}")
        if len(word) > MAX_VALUE:
            raise self.fail(self.line, f"a comment's first word must have at most {MAX_VALUE} characters")

    def complaint(self) -> InputError:
        """What is wrong with the text from here on."""
        rest = self.text[self.at :]
        stripped = rest.lstrip(" \n\r")
        line = self.line + rest[: len(rest) - len(stripped)].count("\n")
        for start, message in COMPLAINTS:
            if stripped.startswith(start):
                return self.fail(line, message)
        tag = stripped[: stripped.find(">") + 1 or 200]
        if not stripped.startswith("<"):
            tag = stripped.split("<", 1)[0] or stripped
            reason = "only spaces and newlines may stand between elements"
        elif ">" not in stripped:
            reason = "the element is not closed with '>'"
        elif tag.count('="') > MOST_MATCHED:
            reason = f"an element must have at most {MAX_ATTRIBUTES} attributes"
        elif "'" in tag:
            reason = "attribute values must be in double quotes: the runtimes read on to the end of the file"
        elif "\n" in tag or "\r" in tag:
            reason = "all attributes of an element must be on one line"
        else:
            reason = 'attributes must be name="value" with single spaces between them'
        if "\t" in tag:
            reason = "tabs are not allowed: the runtimes' parsers refuse them"
        return self.fail(line, f"{reason}, got {tag[:60]!r}")

    def close(self, stack: list[tuple[str, _Element | None]], tag: str) -> None:
        if not stack or stack[-1][0] != tag:
            inside = f"<{stack[-1][0]}>" if stack else "no element"
            raise self.fail(self.line, f"</{tag}> closes {inside}")
        stack.pop()

    def open(
        self, stack: list[tuple[str, _Element | None]], root: _Element | None, tag: str, attributes: str
    ) -> _Element | None:
        """The element, appended to its parent; None with a warning where the runtimes skip it."""
        outer, parent = stack[-1] if stack else ("", None)
        if outer and parent is None:
            return None
        if tag == "algo" and root is not None:
            raise self.fail(self.line, "there must be one <algo> element, got a second one")
        if not outer and tag != "algo":
            raise self.fail(self.line, f"the outermost element must be <algo>, got <{tag}>")
        if PARENT.get(tag) != outer:
            self.warn(self.line, f"<{tag}> inside <{outer}> is skipped")
            return None
        element = self.element(tag, attributes, parent)
        if parent is not None:
            parent.children.append(element)
        return element

    def element(self, tag: str, attributes: str, parent: _Element | None) -> _Element:
        pairs = PAIR.findall(attributes)
        values = dict(pairs)
        number = values.get("s" if tag == "step" else "id", "?")
        where = "algo" if tag == "algo" else f"{tag} {number}"
        if parent is not None and parent.tag != "algo":
            where = f"{parent.where} {where}"
        if len(values) < len(pairs):
            raise self.fail(self.line, f"{where}: an attribute stands twice")
        if len(pairs) > MAX_ATTRIBUTES:
            raise self.fail(self.line, f"{where}: must have at most {MAX_ATTRIBUTES} attributes, got {len(pairs)}")
        for title in REQUIRED[tag]:
            if title not in values:
                raise self.fail(self.line, f"{where}: attribute {title} is missing, every {tag} must have it")
        if len(values) > len(REQUIRED[tag]):
            known = (*REQUIRED[tag], *OPTIONAL[tag])
            for title in values:
                if title not in known:
                    self.warn(self.line, f"{where}: attribute {title} is skipped")
        if len(attributes) > MAX_VALUE and max(map(len, (*values, *values.values()))) > MAX_VALUE:
            raise self.fail(self.line, f"{where}: names and values must have at most {MAX_VALUE} characters")
        return _Element(tag, self.line, values, where)

    def number(self, element: _Element, title: str) -> int:
        """An integer; the runtimes read anything else as 0."""
        value = element.values[title]
        if not NUMBER.fullmatch(value) or not -(2**63) <= int(value) < 2**63:
            raise self.fail(element.line, f"{element.where}: {title} must be an integer, got {value!r}")
        return int(value)

    def flag(self, element: _Element, title: str) -> bool:
        return self.choice(element, title, ("0", "1")) == "1"

    def choice(self, element: _Element, title: str, allowed: tuple[str, ...]) -> str:
        value = element.values[title]
        if value not in allowed:
            raise self.fail(
                element.line, f"{element.where}: {title} must be one of {', '.join(allowed)}, got {value!r}"
            )
        return value


def _program(reader: _Reader, root: _Element) -> Program:
    inplace = reader.flag(root, "inplace")
    values = root.values
    defaults = {"minBytes": 0, "maxBytes": DEFAULT_MAX_BYTES}
    bounds = {title: reader.number(root, title) if title in values else default for title, default in defaults.items()}
    return Program(
        name=values.get("name", ""),
        proto=values["proto"],
        nchannels=reader.number(root, "nchannels"),
        nchunksperloop=reader.number(root, "nchunksperloop"),
        ngpus=reader.number(root, "ngpus"),
        coll=values["coll"],
        inplace=inplace,
        outofplace=reader.flag(root, "outofplace") if "outofplace" in values else not inplace,
        min_bytes=bounds["minBytes"],
        max_bytes=bounds["maxBytes"],
        redop=values.get("redop", "nop"),
        nthreads=reader.number(root, "nthreads") if "nthreads" in values else None,
        gpus=tuple(_gpu(reader, child) for child in root.children),
        absent=frozenset(BY_RUNTIME).difference(values),
    )


def _gpu(reader: _Reader, element: _Element) -> Gpu:
    rank, inputs, outputs, scratch = (reader.number(element, title) for title in REQUIRED["gpu"])
    return Gpu(rank, inputs, outputs, scratch, tuple(_block(reader, child) for child in element.children))


def _block(reader: _Reader, element: _Element) -> ThreadBlock:
    number, send, recv, chan = (reader.number(element, title) for title in REQUIRED["tb"])
    return ThreadBlock(number, send, recv, chan, tuple(_step(reader, child) for child in element.children))


def _step(reader: _Reader, element: _Element) -> Step:
    return Step(
        s=reader.number(element, "s"),
        type=reader.choice(element, "type", STEP_TYPES),
        srcbuf=reader.choice(element, "srcbuf", BUFFERS),
        srcoff=reader.number(element, "srcoff"),
        dstbuf=reader.choice(element, "dstbuf", BUFFERS),
        dstoff=reader.number(element, "dstoff"),
        cnt=reader.number(element, "cnt"),
        depid=reader.number(element, "depid"),
        deps=reader.number(element, "deps"),
        hasdep=reader.flag(element, "hasdep"),
    )


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
        yield from _gpu_lines(gpu)
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


def _gpu_lines(gpu: Gpu) -> Iterator[str]:
    chunks = f'i_chunks="{gpu.i_chunks}" o_chunks="{gpu.o_chunks}" s_chunks="{gpu.s_chunks}"'
    yield f'  <gpu id="{gpu.id}" {chunks}>\n'
    for block in gpu.threadblocks:
        yield _block_text(block)
    yield "  </gpu>\n"


def _block_text(block: ThreadBlock) -> str:
    head = f'    <tb id="{block.id}" send="{block.send}" recv="{block.recv}" chan="{block.chan}">\n'
    return "".join([head, *map(_step_text, block.steps), "    </tb>\n"])


def _step_text(step: Step) -> str:
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
