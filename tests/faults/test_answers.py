"""What an insurance may answer that no insurance should."""

import asyncio
import json
from collections import Counter
from typing import Any

from tests.component.systems.hostile import Received, response, serve
from tests.faults.scene import Scene
from tests.service import service_running, settings_for

NUL, SURROGATE = "\x00", "\ud800"

APPLICATIONS: list[bytes] = [
    response(b'{"applicationId":"a\\u0000b"}', "202 Accepted"),
    response(b'{"applicationId":"a\\ud800b"}', "202 Accepted"),
    response(b'{"applicationId":NaN}', "202 Accepted"),
    response(b'{"applicationId":9007199254740993}', "202 Accepted"),
    response(b"[" * 10_000, "202 Accepted"),
    response('{"applicationId":"Ä"}'.encode("latin-1"), "202 Accepted", Content_Type="application/json; charset=utf-8"),
    response(b"x" * 5_000_000, "500 Internal Server Error"),
    response(b"\x00\xff" * 1000, "500 \xff"),
    response(b"", "202 Accepted"),
]
STATUSES: list[bytes] = [
    *APPLICATIONS[:7],
    response(b'{"status":"CONFIRMED","applicationId":"a","reason":"\\u0000"}'),
    response(b'{"status":"REJECTED","applicationId":"a","reason":"' + b"r" * 100_000 + b'"}'),
]


async def test_strange_answers_are_failed_attempts(scene: Scene) -> None:
    """Each costs an attempt and leaves a short, printable reason, or means what it says; no row is stuck."""
    asked: Counter[tuple[str, int]] = Counter()
    seen: list[Any] = []

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        first = request.method == "POST"
        order_id = json.loads(request.body)["orderId"] if first else int(request.path.split("/")[-2])
        asked[request.method, order_id] += 1
        strange = (APPLICATIONS if first else STATUSES)[scene.placed.index(order_id)]
        sane = {"applicationId": f"app-{order_id}"} | ({} if first else {"status": "CONFIRMED"})
        known = asked[request.method, order_id] > 1
        writer.write(response(json.dumps(sane).encode(), "202 Accepted" if first else "200 OK") if known else strange)

    async with serve(answer) as insurance:
        settings = settings_for(
            scene.dsn,
            scene.sandbox.url,
            {
                "ORDERS_CLIENT__INSURANCE__BASE_URL": insurance.url,
                "ORDERS_CLIENT__INSURANCE__BREAKER__MINIMUM_CALLS": "50",
                "ORDERS_CLIENT__INSURANCE__RETRY__ATTEMPTS": "1",
            },
        )
        async with service_running(settings, "api") as intake:
            for _ in APPLICATIONS:
                await scene.place(intake.client)
        async with service_running(settings, "worker"):
            while await scene.value("SELECT count(*) FROM orders WHERE status = 'ACCEPTED'"):
                seen += await scene.rows("SELECT DISTINCT last_error FROM order_confirmation_task")
                await asyncio.sleep(0.1)
            await scene.ends(failed=len(STATUSES), status=("COMPLETED", "REJECTED"))
    errors = {error for (error,) in seen if error}
    assert errors
    assert all(len(error) <= 500 and error.isprintable() for error in errors)
