"""What the settings' tests share: a refusal's lines, a key, the examples."""

from collections.abc import Mapping

import pytest

from app.settings import ConfigError, load_settings
from app.settings.load import DEFAULT_FILE

EXAMPLES = DEFAULT_FILE.parent / "examples"
KEY = '{"name": "shop", "sha256": "' + "0a" * 32 + '", "scopes": ["orders:write"]}'


def problems(environ: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_settings(environ)
    return refused.value.problems
