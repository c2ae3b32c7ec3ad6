from app.orders import ports
from app.orders.order import Order
from app.systems.exchange import Exchange
from app.systems.receipt.wire import Created, Receipt, Status
from app.systems.request import Request, path
from app.systems.wire import wire_items


class ReceiptAdapter(ports.ReceiptPort):
    """The fiscal receipts as the journey's ReceiptPort."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def create(self, order: Order, payment_id: str, *, key: str, budget: float) -> str:
        body = Receipt(order_id=order.id, payment_id=payment_id, items=wire_items(order.items))
        request = Request("create", "POST", path("receipts"), body, key)
        created = await self._exchange.ask(request, Created, budget=budget)
        return created.id

    async def find(self, receipt_id: str, *, budget: float) -> ports.Receipt:
        request = Request("find", "GET", path("receipts", receipt_id), about=receipt_id)
        status = await self._exchange.ask(request, Status, budget=budget)
        return ports.Receipt(status.status, status.fiscal_number)
