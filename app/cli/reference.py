"""The reference of the configuration: the default file with its comments, and the settings' types and bounds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from app.settings import Settings
from app.settings.load import DEFAULT_FILE, PREFIX

PREFACE = """\
# Configuration

Made by `python -m app check-config --reference` from [`config/default.yml`](../config/default.yml) and
[`app/settings`](../app/settings): change those, and make it anew.

Three layers, each over the one before: `config/default.yml`, the YAML file that `ORDERS_CONFIG` names, and environment
variables. The latter two state only what differs. A variable is `ORDERS_` and the key in capitals, with `__` between
levels; lists and mappings are written as JSON. Durations are in seconds.

What stands under `client.default` and `tasks.default` holds for every system and every task table, unless its own
section says otherwise: `ORDERS_CLIENT__DEFAULT__READ_TIMEOUT` is for all, `ORDERS_CLIENT__SBER__READ_TIMEOUT` for one.

What is unknown, of the wrong type, out of bounds or contradicts another key is refused by every command, all of it at
once and with exit code 2. `python -m app check-config` only checks.
"""

HEAD = "| key | default | type and bounds | meaning | variable |\n|---|---|---|---|---|"

TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false", "null": "null"}
BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}

Schema = Mapping[str, Any]


class Key(NamedTuple):
    """A key with a value of its own, as the default file has it, and the comment beside it."""

    path: tuple[str, ...]
    default: str
    meaning: str

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return PREFIX + "__".join(self.path).upper()


def reference_page() -> str:
    """The page, in Markdown."""
    text, schema = DEFAULT_FILE.read_text(encoding="utf-8"), Settings.model_json_schema()
    return "\n".join((PREFACE, *_sections(text, schema)))


def keys(text: str) -> list[Key]:
    """Every key that a YAML text gives a value, in the order of the text."""
    return list(_keys(yaml.compose(text), text.splitlines(), ()))


def _keys(node: Any, lines: Sequence[str], above: tuple[str, ...]) -> Iterator[Key]:
    for name, value in node.value:
        path, start, end = (*above, name.value), value.start_mark, value.end_mark
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, lines, path)
        else:
            line = lines[end.line]
            yield Key(path, line[start.column : end.column], line[end.column :].lstrip(" #"))


def _sections(text: str, schema: Schema) -> Iterator[str]:
    lines, by_section = text.splitlines(), dict[str, list[Key]]()
    for key in keys(text):
        by_section.setdefault(key.path[0], []).append(key)
    for section, found in by_section.items():
        yield f"## {section}\n"
        if told := _comment_above(lines, lines.index(f"{section}:")):
            yield f"{told}\n"
        yield HEAD
        yield from (_row(key, schema) for key in found)
        yield ""


def _row(key: Key, schema: Schema) -> str:
    cells = f"`{key.name}`", f"`{key.default}`", _kind(_schema_of(key, schema)), key.meaning, f"`{key.variable}`"
    return f"| {' | '.join(cells)} |"


def _comment_above(lines: Sequence[str], line: int) -> str:
    told: list[str] = []
    while line and lines[line - 1].startswith("#"):
        line -= 1
        told.insert(0, lines[line].lstrip("# "))
    return " ".join(told)


def _schema_of(key: Key, schema: Schema) -> Schema:
    node = schema
    for name in key.path:
        node = node["properties"][name] if "properties" in node else node["additionalProperties"]
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return node


def _kind(node: Schema) -> str:
    """The type and its bounds, in words."""
    match node:
        case {"anyOf": kinds}:
            return " or ".join(map(_kind, kinds))
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value}`"
        case {"type": "array"}:
            return "list"
        case {"format": "password"}:
            return "secret"
    return ", ".join(
        (TYPES[node["type"]], *(f"{sign} {node[name]:,}" for name, sign in BOUNDS.items() if name in node))
    )
