from app.systems.wire import Answer, Wire, WireItem, WireMoney


class Entry(Wire):
    order_id: int
    customer_id: str
    status: str
    items: tuple[WireItem, ...]
    total: WireMoney
    application_id: str | None = None
    payment_id: str | None = None
    receipt_id: str | None = None
    fiscal_number: str | None = None
    booking_id: str | None = None
    tickets: tuple[str, ...] | None = None


class Recorded(Answer):
    """Nothing is asked of it but to be JSON, or empty: a login page with status 200 is no record."""
