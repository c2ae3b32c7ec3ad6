"""A client that is generated from the document fits its types together and speaks to the running service."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.published import FILE
from tests.service import Service
from tests.tools import installed

GENERATOR = "openapi-python-client"
USE = """
import sys
from orders_client import AuthenticatedClient
from orders_client.api.orders import place_order, show_order
from orders_client.models import NewItem, NewOrder, OrderView, Price, Queued

client = AuthenticatedClient(base_url=sys.argv[1], token="a-key", raise_on_unexpected_status=True)
order = NewOrder(customer_id="c-42", items=[NewItem(sku="A", quantity=2, price=Price(amount="9.50", currency="RUB"))])
queued = place_order.sync(client=client, body=order, idempotency_key="generated-1")
assert isinstance(queued, Queued), queued
shown = show_order.sync(queued.order_id, client=client)
assert isinstance(shown, OrderView), shown
assert (shown.order_id, shown.total.amount, shown.items[0].sku) == (queued.order_id, "19.00", "A")
"""


def run(*command: str, cwd: Path) -> None:
    """Run a command that has to succeed, with this environment's tools."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
async def test_a_generated_client_places_an_order(service: Service, tmp_path: Path) -> None:
    """It is generated without a warning, mypy accepts it, and it places and reads an order."""
    generator = installed(GENERATOR, f"pip install {GENERATOR}, in an environment of its own")
    client, script = tmp_path / "client", tmp_path / "client" / "use.py"
    run(generator, "generate", "--fail-on-warning", "--path", str(FILE), "--output-path", str(client), cwd=tmp_path)
    script.write_text(USE)
    run(sys.executable, "-m", "mypy", "orders_client", script.name, cwd=client)
    await asyncio.to_thread(run, sys.executable, script.name, str(service.client.base_url), cwd=client)
