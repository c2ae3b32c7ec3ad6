"""Operations that read their request and write their answer by themselves, and a way to them past FastAPI's layers."""

from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from app.api.problems import answer_to


class Straight(APIRoute):
    """FastAPI finds and describes such an operation, no more; its errors become the answers that all errors become."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        request = Request(scope, receive, send)
        try:
            response: Response = await self.endpoint(request)
        except Exception as error:  # noqa: BLE001 - what is not known is raised again
            response = await answer_to(request, error)
        await response(scope, receive, send)
