"""From files and environment to settings, or to one error that lists everything that is wrong."""

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import InitSettingsSource

from app.settings.problems import describe, unknown_sections
from app.settings.settings import Settings, overlaid

DEFAULT_FILE = Path(__file__).resolve().parents[2] / "config" / "default.yml"

PREFIX = "ORDERS_"
OVERLAY = "ORDERS_CONFIG"
NOT_SETTINGS = {OVERLAY, "ORDERS_TEST_DSN"}


class ConfigError(Exception):
    """The configuration is refused; `problems` holds one line for each reason: key, value, rule, what to change."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(("the configuration is refused:", *(f"  {problem}" for problem in problems))))
        self.problems = list(problems)


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read `config/default.yml`, over it the file that ORDERS_CONFIG names, over it the ORDERS_ variables.

    `environ` stands for the process environment. Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    default, overlay = _default(), _read(environ[OVERLAY]) if environ.get(OVERLAY) else {}
    layers = [_variables(environ), overlay, default]
    if problems := [line for layer in layers for line in unknown_sections(layer, default)]:
        raise ConfigError(problems)
    sources = tuple(InitSettingsSource(Settings, layer) for layer in layers)
    try:
        return Settings(_build_sources=(sources, {}))
    except ValidationError as error:
        raise ConfigError(describe(error, layers)) from None


@cache
def _default() -> dict[str, Any]:
    return _read(DEFAULT_FILE)


def _read(file: str | Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
    except OSError as error:
        reason = f"{file}: cannot be read: {error.strerror}. ORDERS_CONFIG names it; correct or unset it"
        raise ConfigError([reason]) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        place = getattr(error, "problem_mark", None)
        where = f"line {place.line + 1}, column {place.column + 1}: " if place else ""
        raise ConfigError([f"{file}: is not YAML: {where}{getattr(error, 'problem', None) or error}"]) from None
    if not isinstance(content, dict):
        raise ConfigError([f"{file}: must be a mapping of sections such as pg:, not a {type(content).__name__}"])
    return content


def _variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """Turn ORDERS_PG__POOL__MAX=80 into {"pg": {"pool": {"max": "80"}}}; lists and mappings are written as JSON."""
    tree: dict[str, Any] = {}
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            value = _value(text)
            for key in reversed(name.removeprefix(PREFIX).lower().split("__")):
                value = {key: value}
            tree = overlaid(tree, value)
    return tree


def _value(text: str) -> Any:
    if text == "null" or text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
