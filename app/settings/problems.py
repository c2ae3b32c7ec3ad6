"""What is wrong with a configuration, in lines that say which key, which value, which rule and what to change."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.settings.settings import overlaid
from app.text import legible

Path = tuple[str, ...]
Tree = Mapping[str, Any]

NAMED = ("client", "tasks")
"""Sections that hold one section for each system or table, and their common values under `default`."""

SECRET = {
    *("pg", "dsn", "direct_dsn", "auth", "keys", "sha256", "webhook", "url", "secrets"),
    *("nats", "servers", "password", "token"),
}
"""What is a secret, or may be one when a text stands where a section or a list belongs."""


def unknown_sections(layer: Tree, default: Tree) -> Iterator[str]:
    """A system or a table is introduced by the default file: elsewhere its name can only be misspelt."""
    for section in NAMED:
        known, named = default.get(section, {}), layer.get(section)
        for name in named if isinstance(named, Mapping) else ():
            if name not in known:
                hint = _hint((section, name), default)
                yield f"{section}.{name}: unknown, {hint} A new one begins in config/default.yml"


def describe(error: ValidationError, layers: Sequence[Tree]) -> list[str]:
    """One line for each problem. `layers`: what was written, the strongest first and the default file last."""
    lines = [line for found in error.errors(include_url=False) for line in _lines(found, layers)]
    return list(dict.fromkeys(lines))


def _lines(found: ErrorDetails, layers: Sequence[Tree]) -> Iterator[str]:
    path = tuple(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden":
        key = _where_written(path, layers)
        yield f"{'.'.join(key)}: unknown key, {_hint(key, _complete(layers[-1]))}"
    elif found["type"] == "missing":
        yield f"{'.'.join(path)}: missing, and it has no default"
    elif found["type"] == "value_error" and isinstance(found["input"], Mapping):
        for contradiction in str(found["ctx"]["error"]).split("; "):
            yield _contradiction(path, contradiction, layers)
    else:
        key = _where_written(path, layers)
        yield f"{'.'.join(key)}{_shown(path, found['input'])}: {_rule(found)}"


def _contradiction(path: Path, text: str, layers: Sequence[Tree]) -> str:
    """A section's own rule names its key relative to the section, a nested section's with the section's name."""
    own = re.match(r"[a-z_.0-9]*", text)
    relative = tuple(own.group().split(".")) if own else ()
    parent = path[:-1] if path[-1:] == relative[:1] else path
    key = _where_written((*parent, *relative), layers)
    return ".".join(key) + text.removeprefix(".".join(relative))


def _where_written(path: Path, layers: Sequence[Tree]) -> Path:
    """The key as somebody wrote it: what a system or a table inherited stands under `default`."""
    if path[:1] and path[0] in NAMED and not any(_holds(layer, path) for layer in layers):
        return (path[0], "default", *path[2:])
    return path


def _holds(tree: Any, path: Path) -> bool:
    return not path or (isinstance(tree, Mapping) and path[0] in tree and _holds(tree[path[0]], path[1:]))


def _complete(default: Tree) -> Tree:
    """The default file with every key that a section may have: those of its common values, too."""
    named = {
        section: {name: overlaid(own.get("default", {}), values) for name, values in own.items()}
        for section in NAMED
        if (own := default.get(section))
    }
    return {**default, **named}


def _hint(path: Path, known: Any) -> str:
    """Suggest a key, also one further down whose levels were joined by one underscore instead of two."""
    *above, key = path
    for part in above:
        known = known.get(part, {}) if isinstance(known, Mapping) else {}
    candidates = dict(_flat(known))
    close = get_close_matches(key, candidates, n=1)
    return f"did you mean {'.'.join((*above, candidates[close[0]]))}?" if close else f"known are {', '.join(known)}."


def _flat(tree: Any, path: Path = ()) -> Iterator[tuple[str, str]]:
    for name, below in tree.items() if isinstance(tree, Mapping) else ():
        yield "_".join((*path, name)), ".".join((*path, name))
        yield from _flat(below, (*path, name))


def _shown(path: Path, value: Any) -> str:
    if value is not None and next(part for part in reversed(path) if not part.isdigit()) in SECRET:
        return " = ***"
    if value is None or isinstance(value, (str, int, float)):
        return f" = {legible(re.sub(r'(?s)(?<=//).*(?=@)|(?<=[?#]).+', '***', str(value)))}"
    return ""


def _rule(found: ErrorDetails) -> str:
    text = str(found["ctx"]["error"]) if found["type"] == "value_error" else found["msg"]
    text = re.sub(r"valid (dictionary|tuple|frozenset)( or instance of \w+)?", _in_yaml, text)
    return re.sub(r"^(Input|String|Value|Tuple|Dictionary|Set|Frozenset) should ", "must ", text)


def _in_yaml(found: re.Match[str]) -> str:
    return "mapping" if found[1] == "dictionary" else "list"
