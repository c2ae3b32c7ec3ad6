"""`python -m app` with a bug: an order of the customer "poison" kills the process that works on it."""

import os
import signal

from app.cli import main
from app.orders.journey import StepWork
from app.tasks.task import Outcome, Task

healthy = StepWork.attempt


async def attempt(self: StepWork, task: Task, budget: float) -> Outcome:
    if '"poison"' in task.payload:
        os.kill(os.getpid(), signal.SIGKILL)
    return await healthy(self, task, budget)


if __name__ == "__main__":
    StepWork.attempt = attempt  # type: ignore[method-assign]
    main()
