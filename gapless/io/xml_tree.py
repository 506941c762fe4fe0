"""XML: a tree of elements. Entities are refused, so nothing expands; a tree has a limit of depth and of memory."""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from gapless.errors import InputError
from gapless.io.reading import Limits

__all__ = ["Element", "parse_xml"]

_MOST_DEPTH = 200
_ELEMENT_BYTES, _ATTRIBUTE_BYTES = 500, 150


def parse_xml(text: str, where: str) -> Element:
    """The root of the tree in a text. Raises `InputError` for what is not well-formed, or beyond the limits."""
    builder, limits = TreeBuilder(), Limits.of(where, len(text))
    depth, held = 0, len(text)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth, held
        depth, held = depth + 1, held + _ELEMENT_BYTES + _ATTRIBUTE_BYTES * len(attributes)
        if depth > _MOST_DEPTH:
            raise InputError(f"{where}: elements must be nested at most {_MOST_DEPTH} deep")
        limits.check_held("its elements", held)
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
