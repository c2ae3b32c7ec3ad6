"""What becomes of a task row after an attempt: the rules of section "attempts" as one pure function."""

from dataclasses import dataclass, replace

from app.settings import TaskSettings
from app.tasks.backoff import backoff
from app.tasks.task import Done, GivenUp, NotMade, NotYet, Outcome, Sent, Task, TaskStatus

LAST_ERROR_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Settlement:
    """The new state of one leased row. `delay`: seconds until it is due again.

    `ended` forgets the external id and gives the task a new key. `effect` is the work's own business.
    """

    task: Task
    label: str
    status: TaskStatus
    retry_count: int
    delay: float = 0.0
    external_id: str | None = None
    last_error: str | None = None
    ended: bool = False
    effect: object = None

    @property
    def going_on(self) -> Task | None:
        """The row under the lease that this settlement gave it, so that what was just sent is asked about at once."""
        if self.label != "sent":
            return None
        return replace(
            self.task,
            status=self.status,
            attempt=self.retry_count,
            lease_token=self.task.lease_token + 1,
            external_id=self.external_id,
        )


def settle(task: Task, outcome: Outcome, rules: TaskSettings) -> Settlement:
    """Turn an outcome into the row's new state. That the last attempt has failed is for the caller to notice."""
    match outcome:
        case Sent(external_id, effect):
            status = TaskStatus.IN_PROGRESS
            return Settlement(task, "sent", status, 1, rules.lease, external_id=external_id, effect=effect)
        case Done(effect):
            return Settlement(task, "completed", TaskStatus.COMPLETED, task.attempt, effect=effect)
        case GivenUp(reason, effect, ended):
            error = printable(reason)
            status = TaskStatus.FAILED
            return Settlement(task, "failed", status, task.attempt, last_error=error, ended=ended, effect=effect)
        case NotMade(reason, delay):
            delay = min(delay, rules.backoff_cap)
            error = printable(reason)
            return Settlement(task, "deferred", task.status, task.attempt - 1, delay=delay, last_error=error)
        case NotYet(reason, after):
            delay = backoff(task.attempt, cap=rules.backoff_cap, jitter=rules.jitter, announced=after)
            error = printable(reason)
            return Settlement(task, "rescheduled", task.status, task.attempt, delay=delay, last_error=error)


def printable(text: str) -> str:
    """Text that PostgreSQL can store: no NUL, no lone surrogate, at most LAST_ERROR_LIMIT characters."""
    return text[:LAST_ERROR_LIMIT].replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
