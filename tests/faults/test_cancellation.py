"""Attempts are cancelled wherever they may be waiting."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from app.tasks.task import Outcome, Task
from tests.faults.scene import Scene
from tests.service import service_running, settings_for

WAITS = 12
"""More than there are in an attempt, so that each of them is reached."""


class CancelledAt:
    """Awaits an attempt, and cancels the task in which it runs when it waits for the nth time."""

    def __init__(self, attempt: Coroutine[Any, Any, Outcome], nth: int) -> None:
        self._attempt, self._nth = attempt, nth
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, Outcome]:
        steps = self._attempt.__await__()
        go_on, with_what = steps.send, None
        while True:
            try:
                waits_for = go_on(with_what)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            self.waits += 1
            if self.waits == self._nth:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                go_on, with_what = steps.send, (yield waits_for)
            except BaseException as error:  # noqa: BLE001 - handed on
                go_on, with_what = steps.throw, error


async def test_a_cancelled_attempt_never_was(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled at any of its waits, in any step, an attempt gives its row back at once and counts for nothing."""
    cancelled: set[tuple[str, int, str]] = set()
    most = 0
    async with service_running(settings_for(scene.dsn, scene.sandbox.url)) as service:

        def cancel_once(table: str, attempt: Any) -> Any:
            async def cancelled_attempt(task: Task, budget: float) -> Outcome:
                nonlocal most
                once = (table, task.order_id, task.status)
                nth = 0 if once in cancelled else scene.placed.index(task.order_id) + 1
                cancelled.add(once)
                cut = CancelledAt(attempt(task, budget), nth)
                try:
                    return await cut
                finally:
                    most = max(most, cut.waits)

            return cancelled_attempt

        for table, poller in service.wiring.pollers.items():
            monkeypatch.setattr(poller._work, "attempt", cancel_once(table, poller._work.attempt))
        await scene.place(service.client, WAITS)
        await scene.ends()
    assert 3 <= most < WAITS
