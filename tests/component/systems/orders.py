from decimal import Decimal

from app.orders.money import Money
from app.orders.order import Item, Order

ITEMS = (Item("seat-1", 2, Money(Decimal("995.50"), "RUB")), Item("seat-2", 1, Money(Decimal("0.01"), "RUB")))
ORDER = Order(17, "c-42", ITEMS)
