"""As it is written first: FastAPI and a session of the SQLAlchemy ORM, two objects, a flush and a commit."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Response
from sqlalchemy import BigInteger, DateTime, ForeignKey
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks.peers.order import NewOrder, Queued

engine = create_async_engine(
    os.environ["PEER_DSN"].replace("postgresql://", "postgresql+asyncpg://"), pool_size=10, max_overflow=0
)
new_session = async_sessionmaker(engine, expire_on_commit=False)
app = FastAPI()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "plain_order"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    customer_id: Mapped[str]
    items: Mapped[list[Any]] = mapped_column(JSONB)


class Task(Base):
    __tablename__ = "plain_task"

    task_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("plain_order.id"))
    status: Mapped[str]
    next_attempt_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    payload: Mapped[dict[str, Any]] = mapped_column(JSONB)


async def session() -> AsyncIterator[AsyncSession]:
    async with new_session() as opened:
        yield opened


@app.post("/orders", status_code=202)
async def place(wanted: NewOrder, response: Response, db: Annotated[AsyncSession, Depends(session)]) -> Queued:
    order = Order(customer_id=wanted.customerId, items=[item.model_dump() for item in wanted.items])
    db.add(order)
    await db.flush()
    now = datetime.now(UTC)
    task = Task(order_id=order.id, status="PENDING", next_attempt_at=now, payload=wanted.model_dump())
    db.add(task)
    await db.commit()
    response.headers["Location"] = f"/orders/{order.id}"
    return Queued(orderId=order.id, taskId=task.task_id)
