"""What the source files say, for promises about what must not be there."""

import ast
from collections.abc import Iterator
from pathlib import Path

import app

APP = Path(app.__path__[0])


def modules() -> dict[str, Path]:
    """The service's modules by their paths inside of it."""
    return {path.relative_to(APP).as_posix(): path for path in sorted(APP.rglob("*.py"))}


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def called(module: Path) -> Iterator[str]:
    """The last name of whatever is called: `sleep` for `asyncio.sleep(1)`."""
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
                yield name
