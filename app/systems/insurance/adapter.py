from app.orders.order import Order
from app.orders.ports import Confirmation, InsurancePort
from app.systems.exchange import Exchange
from app.systems.insurance.wire import Application, Applied, Status
from app.systems.request import Request, path
from app.systems.wire import wire_items


class InsuranceAdapter(InsurancePort):
    """The insurance as the journey's InsurancePort."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def apply(self, order: Order, *, key: str, budget: float) -> str:
        body = Application(order_id=order.id, customer_id=order.customer_id, items=wire_items(order.items))
        request = Request("apply", "POST", path("applications"), body, key)
        applied = await self._exchange.ask(request, Applied, budget=budget)
        return applied.application_id

    async def confirmation(self, order: Order, *, budget: float) -> Confirmation:
        """How the order's application stands.

        Raises SystemRefused with kind "http_404" when the insurance does not know the order, or not yet: an accepted
        application may take a moment to show up. Whether to wait for it is the journey's decision.
        """
        request = Request("confirmation", "GET", path("orders", order.id, "status"))
        status = await self._exchange.ask(request, Status, budget=budget)
        return Confirmation(status.status, status.reason)
