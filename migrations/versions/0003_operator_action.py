"""What operators do, with their reasons; and an index by which they find failed tasks among the finished ones."""

from alembic import op

from migrations.task_table import index_failed

revision = "0003"
down_revision = "0002"

TASK_TABLES = ("order_confirmation_task", "payment_task", "receipt_creation_task", "booking_task", "orderbook_task")


def upgrade() -> None:
    with op.get_context().autocommit_block():  # concurrently, so that nobody waits; first, because it can be repeated
        for table in TASK_TABLES:
            index_failed(table, concurrently=True)
    op.execute("""
        CREATE TABLE operator_action (
            id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            at TIMESTAMPTZ NOT NULL DEFAULT now(),
            caller TEXT NOT NULL,
            action TEXT NOT NULL CHECK (action IN ('isolate', 'release', 'reset', 'retry', 'cancel')),
            target TEXT NOT NULL,
            reason TEXT CHECK (length(reason) BETWEEN 1 AND 500),
            replica TEXT NOT NULL
        )
    """)
    op.execute("CREATE INDEX ix_operator_action_target ON operator_action (target, id)")
