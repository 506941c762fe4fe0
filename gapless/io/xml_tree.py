"""XML: a tree of elements. Entities are refused, so nothing expands; a tree has a limit of depth and of memory."""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from gapless.errors import InputError
from gapless.io.reading import Limits

__all__ = ["Element", "parse_xml"]

_MOST_DEPTH = 200
_MARK_BYTES, _ATTRIBUTE_BYTES = 120, 300
"""Of an element, which has one `<` or two, and of an attribute, as it is read."""


def parse_xml(text: str, where: str) -> Element:
    """The root of the tree in a text. Raises `InputError` for what is not well-formed, or beyond the limits."""
    held = 2 * len(text) + _MARK_BYTES * text.count("<") + _ATTRIBUTE_BYTES * text.count("=")
    Limits.of(where, len(text)).check_held("its tree", held)
    builder, depth = TreeBuilder(), 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_DEPTH:
            raise InputError(f"{where}: elements must be nested at most {_MOST_DEPTH} deep")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def entity(*declared: object) -> None:
        raise InputError(f"{where}: must have no entities of its own")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = start, end, entity
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: must be well-formed XML, got {error}") from None
    return builder.close()
