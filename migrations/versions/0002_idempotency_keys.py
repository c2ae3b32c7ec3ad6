"""The keys by which clients repeat a request, each with the order that it made."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE idempotency_key (
            caller TEXT NOT NULL,
            key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
            fingerprint BYTEA NOT NULL,
            order_id BIGINT REFERENCES orders,
            task_id BIGINT,
            created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
            PRIMARY KEY (caller, key)
        )
    """)
    op.execute("CREATE INDEX ix_idempotency_key_age ON idempotency_key (created_at)")
