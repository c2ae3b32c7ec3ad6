"""Orders, a task table for each step of their journey, and the outbox of their events."""

from alembic import op

from migrations.task_table import create_task_table

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE orders (
            id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            customer_id TEXT NOT NULL CHECK (length(customer_id) BETWEEN 1 AND 64),
            items JSONB NOT NULL,
            status TEXT NOT NULL CHECK (status IN (
                'ACCEPTED', 'CONFIRMED', 'PAID', 'RECEIPT_ISSUED', 'BOOKED', 'COMPLETED',
                'REJECTED', 'PAYMENT_DECLINED', 'CANCELLED',
                'CONFIRMATION_FAILED', 'PAYMENT_FAILED', 'RECEIPT_FAILED', 'BOOKING_FAILED', 'RECORD_FAILED')),
            version INTEGER NOT NULL DEFAULT 1 CHECK (version >= 1),
            reason TEXT,
            details JSONB NOT NULL DEFAULT '{}',
            created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
            updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
        ) WITH (fillfactor = 85)
    """)
    op.execute("CREATE INDEX ix_orders_customer ON orders (customer_id, id)")
    op.execute("CREATE INDEX ix_orders_status ON orders (status, id)")

    create_task_table("order_confirmation_task", due_index="ix_oct_due")
    create_task_table("payment_task", due_index="ix_pt_due")
    create_task_table("receipt_creation_task", due_index="ix_rct_due")
    create_task_table("booking_task", due_index="ix_bt_due")
    create_task_table("orderbook_task", due_index="ix_obt_due")

    op.execute("""
        CREATE TABLE outbox_event (
            event_id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
            position BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
            order_id BIGINT NOT NULL REFERENCES orders,
            sequence INTEGER NOT NULL CHECK (sequence >= 1),
            type TEXT NOT NULL,
            data JSONB NOT NULL,
            occurred_at TIMESTAMPTZ NOT NULL DEFAULT now(),
            traceparent TEXT,
            status TEXT NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PUBLISHED', 'PARKED')),
            attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
            next_attempt_at TIMESTAMPTZ NOT NULL DEFAULT now(),
            published_at TIMESTAMPTZ,
            last_error TEXT,
            lease_token BIGINT NOT NULL DEFAULT 0,
            UNIQUE (order_id, sequence)
        ) WITH (
            fillfactor = 80,
            autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
            autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 1000
        )
    """)
    op.execute("CREATE INDEX ix_outbox_due ON outbox_event (next_attempt_at) WHERE status = 'PENDING'")
    op.execute("CREATE INDEX ix_outbox_pending ON outbox_event (position) WHERE status = 'PENDING'")
    op.execute("CREATE INDEX ix_outbox_parked ON outbox_event (position) WHERE status = 'PARKED'")
