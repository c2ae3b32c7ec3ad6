from typing import Annotated, Literal

from pydantic import StringConstraints

from app.systems.wire import Answer, AskedId, Id, Reason, Wire, WireMoney

WEB_ADDRESS = r"^https?://[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+$"
PaymentUrl = Annotated[str, StringConstraints(max_length=2000, pattern=WEB_ADDRESS)]


class Payment(Wire):
    order_id: int
    amount: WireMoney


class Registered(Answer):
    id: Id
    payment_url: PaymentUrl


class Status(Answer):
    id: AskedId
    status: Literal["REGISTERED", "PAID", "DECLINED"]
    reason: Reason | None = None
