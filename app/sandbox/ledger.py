"""What a stand-in remembers of the calls that changed something."""

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class Operation:
    """One write that was carried out; `polls` counts how often its status was asked, `ending` is its final status."""

    id: str
    key: str
    order_id: int
    polls: int = 0
    ending: str | None = None
    entry: bytes = b""


class Ledger:
    """Operations in memory. Beyond `limit` operations the orders that were touched longest ago are forgotten."""

    def __init__(self, name: str, limit: int) -> None:
        self._name, self._limit = name, limit
        self._by_key: dict[str, Operation] = {}
        self._by_id: dict[str, Operation] = {}
        self._orders: OrderedDict[int, list[Operation]] = OrderedDict()
        self.zero_counters()

    def zero_counters(self) -> None:
        self.operations = self.repeated_keys = self.orders_seen_twice = 0

    def record(self, key: str, order_id: int) -> Operation:
        """Return the operation under `key`, whichever order it was for; a new key carries it out for this order."""
        known = self._by_key.get(key)
        if known is None:
            return self._carry_out(key, order_id)
        self.repeated_keys += 1
        self._orders.move_to_end(known.order_id)
        return known

    def of_order(self, order_id: int) -> Operation | None:
        """Return the latest operation for the order."""
        if order_id not in self._orders:
            return None
        self._orders.move_to_end(order_id)
        return self._orders[order_id][-1]

    def find(self, operation_id: str) -> Operation | None:
        operation = self._by_id.get(operation_id)
        if operation is not None:
            self._orders.move_to_end(operation.order_id)
        return operation

    def operations_per_order(self) -> dict[int, int]:
        return {order_id: len(operations) for order_id, operations in self._orders.items()}

    def forget_all(self) -> None:
        self._by_key.clear()
        self._by_id.clear()
        self._orders.clear()

    def _carry_out(self, key: str, order_id: int) -> Operation:
        of_order = self._orders.setdefault(order_id, [])
        self._orders.move_to_end(order_id)
        operation = Operation(f"{self._name}-{order_id}-{len(of_order) + 1}", key, order_id)
        of_order.append(operation)
        self._by_key[key] = self._by_id[operation.id] = operation
        self.operations += 1
        if len(of_order) == 2:  # noqa: PLR2004 - the word is "twice"
            self.orders_seen_twice += 1
        self._forget_oldest()
        return operation

    def _forget_oldest(self) -> None:
        while len(self._by_key) > self._limit:
            _, operations = self._orders.popitem(last=False)
            for operation in operations:
                del self._by_key[operation.key], self._by_id[operation.id]
