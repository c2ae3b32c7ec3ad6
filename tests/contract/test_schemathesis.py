"""Schemathesis believes the document and tries the running service: whatever they disagree about fails."""

import asyncio
import json
import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.service import Sandbox, service_running, settings_for

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "tests/contract/schemathesis.toml"
KEY = "a-key-for-everything"
"""As schemathesis.toml has it."""
GUARDED = {
    "ORDERS_AUTH__MODE": "api_key",
    "ORDERS_AUTH__KEYS": json.dumps(
        [{"name": "all", "sha256": sha256(KEY.encode()).hexdigest(), "scopes": ["orders:read", "orders:write", "ops"]}]
    ),
}


async def examine(url: str, notes: Path, *options: str) -> None:
    """Run schemathesis against the service; fails with what it says if it finds something. Its `notes` are its own."""
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("st"), "--no-color", "--config-file", ROOT / CONFIG),
        *("run", f"{url}/openapi.json", *options),
        cwd=notes,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def test_the_examples_are_accepted(pg_dsn: str, sandbox: Sandbox, tmp_path: Path) -> None:
    """Every example of a request is answered as the document says."""
    async with service_running(settings_for(pg_dsn, sandbox.url)) as service:
        await examine(str(service.client.base_url), tmp_path, "--phases", "examples")


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [pytest.param(False, marks=pytest.mark.release), True])
async def test_the_document_tells_the_truth(guarded: bool, pg_dsn: str, sandbox: Sandbox, tmp_path: Path) -> None:
    """No request that the document allows or forbids gets an answer that it does not foresee, with keys and without."""
    async with service_running(settings_for(pg_dsn, sandbox.url, GUARDED if guarded else {})) as service:
        await examine(str(service.client.base_url), tmp_path, "--max-time", "12")
