"""Settings with which a lease is over in seconds: all else is shortened along with it."""

LEASE = 4.0

SHORT = {
    "ORDERS_CLIENT__DEFAULT__CONNECT_TIMEOUT": "0.5",
    "ORDERS_CLIENT__DEFAULT__READ_TIMEOUT": "1",
    "ORDERS_CLIENT__DEFAULT__TOTAL_TIMEOUT": "2.5",
    "ORDERS_TASKS__DEFAULT__LEASE": str(LEASE),
    "ORDERS_TASKS__DEFAULT__POLL_INTERVAL": "1",
    "ORDERS_EVENTS__PUBLISH_TIMEOUT": "0.5",
    "ORDERS_EVENTS__LEASE": "5.5",
    "ORDERS_EVENTS__POLL_INTERVAL": "1",
    "ORDERS_SHUTDOWN__LEAD": "0",
}

LASTING = SHORT | {"ORDERS_TASKS__DEFAULT__LEASE": "60"}
"""Likewise, but a lease outlasts every outage: an attempt whose report is late is not lost, and none may be."""
