"""The JSON of the API: what comes in, and what goes out."""

from app.api.schemas.orders import (
    NewItem,
    NewOrder,
    OrderPage,
    OrderRow,
    OrderView,
    Price,
    Queued,
    StepView,
    order_row,
    order_view,
    step_view,
)
from app.api.schemas.systems import SystemsView, SystemView, not_called, system_view
from app.api.schemas.tasks import TaskPage, TaskRow, task_row
from app.api.schemas.wire import CustomerId, Int64, View, Wire

__all__ = [
    "CustomerId",
    "Int64",
    "NewItem",
    "NewOrder",
    "OrderPage",
    "OrderRow",
    "OrderView",
    "Price",
    "Queued",
    "StepView",
    "SystemView",
    "SystemsView",
    "TaskPage",
    "TaskRow",
    "View",
    "Wire",
    "not_called",
    "order_row",
    "order_view",
    "step_view",
    "system_view",
    "task_row",
]
