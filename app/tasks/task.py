"""A claimed task, and what an attempt at it can come to."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class TaskStatus(StrEnum):
    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


ACTIVE = (TaskStatus.PENDING, TaskStatus.IN_PROGRESS)


class Lease(NamedTuple):
    task_id: int
    token: int


@dataclass(frozen=True, slots=True)
class Task:
    """A row of a `*_task` table under lease. `attempt` counts from 1 in each phase and includes this one.

    `key` is the Idempotency-Key of the task's operation at its system: the same on every attempt.
    """

    task_id: int
    order_id: int
    status: TaskStatus
    attempt: int
    lease_token: int
    payload: str
    key: str
    external_id: str | None = None
    traceparent: str | None = None

    @property
    def under(self) -> Lease:
        return Lease(self.task_id, self.lease_token)


@dataclass(frozen=True, slots=True)
class Sent:
    """The system took the task in: from now on it is polled under `external_id`, with its attempts counted anew."""

    external_id: str
    effect: object = None


@dataclass(frozen=True, slots=True)
class Done:
    """The step has its answer, welcome or not; `effect` says what it means."""

    effect: object = None


@dataclass(frozen=True, slots=True)
class NotYet:
    """An attempt that counts and did not decide. `after`: seconds that the system asked us to wait."""

    reason: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class NotMade:
    """No call was made: the attempt is given back and the task is due again `delay` seconds from now."""

    reason: str
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class GivenUp:
    """No further attempt can help. `ended`: the system closed its operation, so that a retry has to begin a new one."""

    reason: str
    effect: object = None
    ended: bool = False


Outcome = Sent | Done | NotYet | NotMade | GivenUp
