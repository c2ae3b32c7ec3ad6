from app.orders import ports
from app.orders.order import Order
from app.systems.exchange import Exchange
from app.systems.request import Request, path
from app.systems.sber.wire import Payment, Registered, Status
from app.systems.wire import WireMoney


class SberAdapter(ports.PaymentPort):
    """Sber's payments as the journey's PaymentPort."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def register(self, order: Order, *, key: str, budget: float) -> ports.Registration:
        body = Payment(order_id=order.id, amount=WireMoney.of(order.total))
        request = Request("register", "POST", path("payments"), body, key)
        registered = await self._exchange.ask(request, Registered, budget=budget)
        return ports.Registration(registered.id, registered.payment_url)

    async def find(self, payment_id: str, *, budget: float) -> ports.Payment:
        request = Request("find", "GET", path("payments", payment_id), about=payment_id)
        status = await self._exchange.ask(request, Status, budget=budget)
        return ports.Payment(status.status, status.reason)
