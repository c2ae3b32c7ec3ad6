from dataclasses import replace

import pytest

from app.orders.ports import SystemRefused
from app.sandbox.server import running_sandbox
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.odnakassa.adapter import OdnakassaAdapter
from app.systems.orderbook.adapter import OrderbookAdapter
from app.systems.receipt.adapter import ReceiptAdapter
from app.systems.sber.adapter import SberAdapter
from app.systems.system import open_system
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import section


@pytest.mark.rule("OAS-3")
async def test_an_order_passes_all_five_systems() -> None:
    """The adapters and the stand-ins understand each other, from the application to the entry in the book."""
    async with (
        running_sandbox() as url,
        open_system("insurance", section(f"{url}/insurance"), InsuranceAdapter) as insurance,
        open_system("sber", section(f"{url}/sber"), SberAdapter) as sber,
        open_system("receipt", section(f"{url}/receipt"), ReceiptAdapter) as receipt,
        open_system("odnakassa", section(f"{url}/odnakassa"), OdnakassaAdapter) as odnakassa,
        open_system("orderbook", section(f"{url}/orderbook"), OrderbookAdapter) as orderbook,
    ):
        application = await insurance.adapter.apply(ORDER, key="k-1", budget=20)
        assert await insurance.adapter.apply(ORDER, key="k-1", budget=20) == application
        assert (await insurance.adapter.confirmation(ORDER, budget=20)).status == "CONFIRMED"
        payment = await sber.adapter.register(ORDER, key="k-1", budget=20)
        assert (await sber.adapter.find(payment.payment_id, budget=20)).status == "PAID"
        created = await receipt.adapter.create(ORDER, payment.payment_id, key="k-1", budget=20)
        issued = await receipt.adapter.find(created, budget=20)
        assert issued.status == "ISSUED"
        booked = await odnakassa.adapter.book(ORDER, key="k-1", budget=20)
        assert (await odnakassa.adapter.find(booked, budget=20)).tickets
        details = {"applicationId": application, "paymentId": payment.payment_id, "fiscalNumber": issued.fiscal_number}
        for _ in range(2):
            await orderbook.adapter.record(replace(ORDER, details=details), budget=20)
        for system in (insurance, sber, receipt, odnakassa, orderbook):
            assert (await system.health.check()).up
            assert system.snapshot().policy.state == "closed"


async def test_what_the_sandbox_does_not_know_is_refused() -> None:
    """Asking for an order, or a payment, that was never applied for is SystemRefused with its status as kind."""
    async with (
        running_sandbox() as url,
        open_system("insurance", section(f"{url}/insurance"), InsuranceAdapter) as insurance,
        open_system("sber", section(f"{url}/sber"), SberAdapter) as sber,
        open_system("receipt", section(f"{url}/nowhere"), ReceiptAdapter) as receipt,
    ):
        with pytest.raises(SystemRefused) as raised:
            await insurance.adapter.confirmation(ORDER, budget=20)
        assert raised.value.kind == "http_404"
        with pytest.raises(SystemRefused):
            await sber.adapter.find("unknown", budget=20)
        assert (await receipt.health.check()).reason == "http_404"
