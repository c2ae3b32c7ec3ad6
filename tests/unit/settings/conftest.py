from pathlib import Path

import pytest


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    return tmp_path / "overlay.yml"
