"""What adapters offer: the port's operations, and nothing that takes a system's name."""

import inspect
from typing import Any

import pytest

from app.orders import ports
from app.systems.client import Client
from app.systems.exchange import Exchange
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.odnakassa.adapter import OdnakassaAdapter
from app.systems.orderbook.adapter import OrderbookAdapter
from app.systems.receipt.adapter import ReceiptAdapter
from app.systems.sber.adapter import SberAdapter
from app.wiring import ADAPTERS
from tests.rules.sources import imported, modules

PORTS: dict[type[Any], type[Any]] = {
    InsuranceAdapter: ports.InsurancePort,
    SberAdapter: ports.PaymentPort,
    ReceiptAdapter: ports.ReceiptPort,
    OdnakassaAdapter: ports.BookingPort,
    OrderbookAdapter: ports.OrderBookPort,
}


def operations(of: type[Any]) -> dict[str, Any]:
    return {name: part for name, part in vars(of).items() if inspect.isfunction(part) and not name.startswith("_")}


@pytest.mark.rule("OAS-X2")
@pytest.mark.parametrize("adapter", PORTS)
def test_an_adapter_offers_its_ports_operations_and_no_other(adapter: type[Any]) -> None:
    """An operation has a name of the domain: there is none to which one tells what to do, or whom to ask."""
    assert set(PORTS) == set(ADAPTERS.values())
    assert operations(adapter).keys() == operations(PORTS[adapter]).keys()
    for operation in operations(adapter).values():
        assert not {"system", "name", "operation", "method"} & inspect.signature(operation).parameters.keys()


@pytest.mark.rule("OAS-X2", "OAS-1")
def test_the_system_is_chosen_once() -> None:
    """Whom to ask is settled when client and exchange are built: no call names a system, or a policy."""
    assert list(inspect.signature(Exchange.ask).parameters) == ["self", "request", "answer", "budget"]
    assert list(inspect.signature(Client.send).parameters) == ["self", "request"]
    assert operations(Exchange).keys() == {"ask"}


@pytest.mark.rule("OAS-4", "OAS-X3")
def test_wire_types_are_known_to_their_adapter_alone() -> None:
    """No module but a system's adapter imports the system's wire types."""
    users = {
        (name, used)
        for name, path in modules().items()
        for used in imported(path)
        if used.startswith("app.systems.") and used.endswith(".wire") and used != "app.systems.wire"
    }
    assert users == {(f"systems/{system}/adapter.py", f"app.systems.{system}.wire") for system in ADAPTERS}
