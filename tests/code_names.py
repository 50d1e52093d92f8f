"""What a Python file defines, by its source alone, and what a page names of it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def names_in(file: Path) -> frozenset[str]:
    """Functions, classes and constants of the file; methods and attributes as `Class.name`. None of another file."""
    if file.suffix != ".py":
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text()).body:
        found.update(defined(node))
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{name}" for inner in node.body for name in members(inner))
    return frozenset(found)


def defined(node: ast.stmt) -> list[str]:
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def members(node: ast.stmt) -> list[str]:
    """What a statement in a class body defines; a method also defines the attributes that it sets."""
    attributes = [
        target.attr
        for statement in ast.walk(node)
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    ]
    return defined(node) + (attributes if isinstance(node, Function) else [])


def code_links(text: str) -> list[tuple[str, str]]:
    """What stands in code font and is a link, and where it leads, in order."""
    return re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", text)
