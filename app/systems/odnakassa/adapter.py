from app.orders import ports
from app.orders.order import Order
from app.systems.exchange import Exchange
from app.systems.odnakassa.wire import Booking, Created, Status
from app.systems.request import Request, path
from app.systems.wire import wire_items


class OdnakassaAdapter(ports.BookingPort):
    """Odnakassa's bookings as the journey's BookingPort."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def book(self, order: Order, *, key: str, budget: float) -> str:
        body = Booking(order_id=order.id, items=wire_items(order.items))
        request = Request("book", "POST", path("bookings"), body, key)
        created = await self._exchange.ask(request, Created, budget=budget)
        return created.id

    async def find(self, booking_id: str, *, budget: float) -> ports.Booking:
        request = Request("find", "GET", path("bookings", booking_id), about=booking_id)
        status = await self._exchange.ask(request, Status, budget=budget)
        return ports.Booking(status.status, status.tickets)
