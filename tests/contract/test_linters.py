"""The linters that API teams use have nothing against the document."""

import re
import subprocess

import pytest

from tests.contract.published import FILE
from tests.tools import installed

PACKAGES = {"spectral": "@stoplight/spectral-cli", "redocly": "@redocly/cli"}


@pytest.mark.parametrize("tool", PACKAGES)
def test_a_linter_finds_nothing(tool: str) -> None:
    """No error and no warning, with the rules of .spectral.yaml and redocly.yaml."""
    command = installed(tool, f"npm install {PACKAGES[tool]}")
    done = subprocess.run([command, "lint", FILE.name], cwd=FILE.parent, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.search("No results|Your API description is valid", said), said
    assert "You have" not in said, said
