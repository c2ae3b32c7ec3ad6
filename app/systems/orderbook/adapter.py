from app.orders.order import Order
from app.orders.ports import OrderBookPort
from app.systems.exchange import Exchange
from app.systems.orderbook.wire import Entry, Recorded
from app.systems.request import Request, path
from app.systems.wire import WireMoney, wire_items


class OrderbookAdapter(OrderBookPort):
    """The order book, an internal service, as the journey's OrderBookPort (WHERE-2)."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def record(self, order: Order, *, budget: float) -> None:
        entry = Entry.model_validate(
            {
                **order.details,
                "orderId": order.id,
                "customerId": order.customer_id,
                "status": order.status,
                "items": wire_items(order.items),
                "total": WireMoney.of(order.total),
            }
        )
        request = Request("record", "PUT", path("entries", order.id), entry, key=f"entry-{order.id}")
        await self._exchange.ask(request, Recorded, budget=budget)
