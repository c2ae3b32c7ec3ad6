"""Programs that some tests need besides Python."""

import os
import shutil

import pytest


def installed(program: str, how: str) -> str:
    """Where the program is; where it is not, the test is skipped with what installs it."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        pytest.skip(f"{program} is not installed ({how})")
    return path
