"""Protection of calls to external systems: budget, retry, circuit breaker, bulkhead, timeout."""

from app.resilience.errors import BulkheadFull, CallTimeout, CircuitOpen
from app.resilience.policy import Policy, PolicySnapshot
from app.resilience.settings import PolicySettings
from app.resilience.verdict import Broken, Fault, Refused, Unavailable

__all__ = [
    "Broken",
    "BulkheadFull",
    "CallTimeout",
    "CircuitOpen",
    "Fault",
    "Policy",
    "PolicySettings",
    "PolicySnapshot",
    "Refused",
    "Unavailable",
]
