"""What operators say about their actions, and how these are listed."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from app.api.schemas.wire import PRINTABLE, Int64, Text, View, Wire, told
from app.audit import Action, OperatorAction


class Reason(Wire):
    """Why an operator acts; it is kept in the audit."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=PRINTABLE)] = Field(
        examples=["the bank has confirmed that it is back"]
    )


class ActionRow(View):
    """What an operator did; `target` is a system, or a task as `table/id`, `replica` the process that did it."""

    id: Int64
    at: datetime
    caller: Text
    action: Action
    target: Text
    reason: Text | None
    replica: Text


class ActionPage(View):
    actions: Annotated[list[ActionRow], told(maxItems=1000)]


def action_row(action: OperatorAction) -> ActionRow:
    return ActionRow(
        id=action.id,
        at=action.at,
        caller=action.caller,
        action=action.action,
        target=action.target,
        reason=action.reason,
        replica=action.replica,
    )
