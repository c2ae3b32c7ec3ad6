"""The shape of every `*_task` table: the queue's statements fit any table made here."""

from alembic import op


def create_task_table(name: str, due_index: str) -> None:
    """Create the task table `name`, with `due_index` on the rows that a claim looks through.

    An attempt updates its row twice, and each update moves `next_attempt_at`: pages keep room for the new versions,
    and vacuum comes long before a fifth of all the finished ones is dead.
    """
    op.execute(f"""
        CREATE TABLE {name} (
            task_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            order_id BIGINT NOT NULL UNIQUE REFERENCES orders,
            external_id TEXT,
            status TEXT NOT NULL CHECK (status IN ('PENDING', 'IN_PROGRESS', 'COMPLETED', 'FAILED')),
            retry_count INTEGER NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
            next_attempt_at TIMESTAMPTZ NOT NULL,
            last_error TEXT,
            payload JSONB NOT NULL,
            created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
            updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
            lease_token BIGINT NOT NULL DEFAULT 0,
            traceparent TEXT
        ) WITH (
            fillfactor = 80,
            autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
            autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 1000
        )
    """)
    op.execute(f"CREATE INDEX {due_index} ON {name} (next_attempt_at) WHERE status IN ('PENDING', 'IN_PROGRESS')")
    index_failed(name)


def index_failed(name: str, *, concurrently: bool = False) -> None:
    """Index the rows that wait for an operator, which are few among many finished ones, unless they are already."""
    how = "CONCURRENTLY IF NOT EXISTS" if concurrently else ""
    op.execute(f"CREATE INDEX {how} ix_{name}_failed ON {name} (task_id) WHERE status = 'FAILED'")
