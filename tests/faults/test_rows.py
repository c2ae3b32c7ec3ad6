"""Rows that cannot be worked on as they are: each ends visibly and takes no other with it."""

from tests.faults.scene import Scene
from tests.service import service_running, settings_for


async def test_a_payload_that_cannot_be_read_fails_its_order_alone(scene: Scene) -> None:
    """The third of ten claimed rows is unreadable: nine orders are completed, the third fails and says why."""
    settings = settings_for(scene.dsn, scene.sandbox.url)
    async with service_running(settings, "api") as intake:
        ids = await scene.place(intake.client, 10)
    await scene.rows(
        "UPDATE order_confirmation_task SET payload = payload - 'items' WHERE order_id = :id", id=sorted(ids)[2]
    )
    async with service_running(settings, "worker"):
        await scene.ends(status=("COMPLETED", "CONFIRMATION_FAILED"))
    ((failed, reason),) = await scene.rows("SELECT id, reason FROM orders WHERE status = 'CONFIRMATION_FAILED'")
    assert failed == sorted(ids)[2]
    assert reason.startswith("payload: it cannot be read")


async def test_attempts_that_are_used_up_fail_once(scene: Scene) -> None:
    """With 20 attempts counted and the lease over, the step fails once, with its effects, and no call is made."""
    settings = settings_for(scene.dsn, scene.sandbox.url)
    async with service_running(settings, "api") as intake:
        await scene.place(intake.client)
    await scene.rows("UPDATE order_confirmation_task SET retry_count = 20, lease_token = 20")
    async with service_running(settings, "worker"), service_running(settings, "worker"):
        await scene.ends(status=("CONFIRMATION_FAILED",))
    assert await scene.rows("SELECT type FROM outbox_event ORDER BY sequence") == [
        ("order.accepted",),
        ("order.step_failed",),
    ]
    assert await scene.value("SELECT reason FROM orders") == "lost: no report came back from the last of 20 attempts"
    assert await scene.sandbox.operations("insurance") == {}
