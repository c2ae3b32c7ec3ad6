"""What a new version of the API would break for clients of an old one, by their OpenAPI documents."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

MOST = ("maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties")
LEAST = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")
EXACT = ("pattern", "format")
PLAIN = {"type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "$ref", "additionalProperties"}
SILENT = {"description", "title", "default", "examples", "example", "contentMediaType", "deprecated"}
UNDERSTOOD = {*MOST, *LEAST, *EXACT, *PLAIN, *SILENT}


class NotUnderstood(Exception):
    """A schema uses a keyword that this comparison does not know: silence would pass for consent."""


def breaking(old: Json, new: Json) -> list[str]:
    """Every way in which a client that goes by `old` may fail with `new`; more answers and more choice are none."""
    asked, sent = _Fit(old, new, sent=False), _Fit(new, old, sent=True)
    found: list[str] = []
    for name, before, after in _pairs(old["paths"], new["paths"]):
        found += _operation(name, before, after, asked, sent) if after else [f"{name}: removed"]
    for name, before, after in _pairs(old.get("webhooks", {}), new.get("webhooks", {})):
        found += _bodies(name, before["requestBody"], after["requestBody"], sent) if after else [f"{name}: removed"]
    return found


def _pairs(old: Json, new: Json) -> Iterator[tuple[str, Json, Json | None]]:
    for path, methods in old.items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation, new.get(path, {}).get(method)


def _operation(name: str, old: Json, new: Json, asked: "_Fit", sent: "_Fit") -> Iterator[str]:
    if any(wanted not in old.get("security", []) for wanted in new.get("security", [])):
        yield f"{name}: asks for another scope"
    before, after = _parameters(old, asked.sub), _parameters(new, asked.sup)
    yield from (f"{name}: parameter {key} removed" for key in before.keys() - after.keys())
    for key, parameter in after.items():
        known = before.get(key, {})
        if parameter.get("required") and not known.get("required"):
            yield f"{name}: parameter {key} required"
        if known:
            yield from asked.misfits(known["schema"], parameter["schema"], f"{name}: parameter {key}")
    if "requestBody" in new:
        if new["requestBody"].get("required") and not old.get("requestBody", {}).get("required"):
            yield f"{name}: body required"
        yield from _bodies(f"{name} body", old.get("requestBody", {}), new["requestBody"], asked)
    for status, answer in old["responses"].items():
        place = f"{name} {status}"
        if status in new["responses"]:
            told = new["responses"][status]
            yield from (
                f"{place}: header {h} removed" for h in answer.get("headers", {}).keys() - told.get("headers", {})
            )
            yield from _bodies(place, answer, told, sent)
        elif status[0] in "23":
            yield f"{place}: removed"


def _bodies(place: str, old: Json, new: Json, fit: "_Fit") -> Iterator[str]:
    for media_type, media in old.get("content", {}).items():
        if media_type not in new.get("content", {}):
            yield f"{place}: {media_type} removed"
            continue
        before, after = media["schema"], new["content"][media_type]["schema"]
        yield from fit.misfits(after, before, place) if fit.sent else fit.misfits(before, after, place)


def _parameters(operation: Json, document: Json) -> Json:
    parameters = [_resolved(p, document) for p in operation.get("parameters", [])]
    return {f"{p['name']} in {p['in']}": p for p in parameters}


def _resolved(part: Json, document: Json) -> Json:
    while "$ref" in part:
        found: Any = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        part = found
    return part


@dataclass(frozen=True)
class _Fit:
    """Whether all values of a schema in `sub` are values of one in `sup`.

    What clients send has to fit from the old document into the new one; what is `sent` to them the other way round.
    """

    sub: Json
    sup: Json
    sent: bool

    def misfits(self, sub: Json, sup: Json, place: str) -> Iterator[str]:
        for narrow in _choices(sub, self.sub):
            fits = [list(self._misfits(narrow, wide, place)) for wide in _choices(sup, self.sup)]
            if [] not in fits:
                yield from fits[0] if len(fits) == 1 else [f"{place}: {narrow.get('type')} fits no choice"]

    def _misfits(self, sub: Json, sup: Json, place: str) -> Iterator[str]:
        if unknown := {*sub, *sup} - UNDERSTOOD:
            raise NotUnderstood(f"{place}: {unknown}")
        if "type" in sup and sub.get("type") not in {sup["type"], "integer" if sup["type"] == "number" else None}:
            yield f"{place}: type {sub.get('type')}, not {sup['type']}"
        if (allowed := _values(sup)) is not None and not (_values(sub) or {None: None}).keys() <= allowed.keys():
            yield f"{place}: values {[*(_values(sub) or ['any'])]}, not {[*allowed]}"
        for name in MOST:
            if name in sup and sub.get(name, float("inf")) > sup[name]:
                yield f"{place}: {name} {sup[name]}, was {sub.get(name)}"
        for name in LEAST:
            if name in sup and sub.get(name, float("-inf")) < sup[name]:
                yield f"{place}: {name} {sup[name]}, was {sub.get(name)}"
        yield from (f"{place}: {name} differs" for name in EXACT if name in sup and sub.get(name) != sup[name])
        yield from self._members(sub, sup, place)

    def _members(self, sub: Json, sup: Json, place: str) -> Iterator[str]:
        yield from (f"{place}/{name}: required" for name in {*sup.get("required", ())} - {*sub.get("required", ())})
        narrow, wide = sub.get("properties", {}), sup.get("properties", {})
        if sup.get("additionalProperties") is False:
            yield from (f"{place}/{name}: removed" for name in narrow.keys() - wide.keys())
        if self.sent:
            yield from (f"{place}/{name}: removed" for name in wide.keys() - narrow.keys())
        for name in narrow.keys() & wide.keys():
            yield from self.misfits(narrow[name], wide[name], f"{place}/{name}")
        for name in ("items", "additionalProperties"):
            if isinstance(sup.get(name), dict):
                yield from self.misfits(sub.get(name) or {}, sup[name], f"{place}/{name}")


def _choices(schema: Json, document: Json) -> list[Json]:
    """The alternatives of a schema, without references."""
    schema = _resolved(schema, document)
    choices = schema.get("anyOf") or schema.get("oneOf")
    return [c for choice in choices for c in _choices(choice, document)] if choices else [schema]


def _values(schema: Json) -> dict[Any, None] | None:
    """The only values there are, if the schema lists them."""
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return None if listed is None else dict.fromkeys(listed)
