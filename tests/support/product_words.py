"""The words of the product's code: its names, and the prose of its docstrings, comments and messages."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from doc_pages import ROOT

FOLDERS = ("gapless", "solvers", "encodings", "topologies", "profiles")


def sources() -> list[Path]:
    """Every Python file of the product; what a link repeats stands once."""
    return sorted({path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")})


def identifiers(text: str) -> Iterator[str]:
    """Every name that a module binds: functions, classes, parameters, fields, variables, imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[-1]


def prose(text: str) -> str:
    """Comments, docstrings and other strings of a module."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(token.string for token in tokens if token.type in kinds)
