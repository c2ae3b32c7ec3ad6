"""Runs the revisions on the connection that `app.db.migrate` hands over, or writes them as SQL (`--sql`)."""

from collections.abc import Collection, Mapping
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo


def _applied(ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]) -> None:  # noqa: ARG001 - alembic passes all four
    context.config.attributes["applied"].append(step.up_revision_id)


if context.is_offline_mode():
    context.configure(dialect_name="postgresql")
else:
    if "connection" not in context.config.attributes:
        raise SystemExit("run `python -m app migrate`: it knows the database and lets one replica migrate at a time")
    context.configure(
        connection=context.config.attributes["connection"],
        transaction_per_migration=True,
        on_version_apply=_applied,
    )

with context.begin_transaction():
    context.run_migrations()
