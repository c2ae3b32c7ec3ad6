from typing import Literal

import pytest

from app.systems.request import Request, path


@pytest.mark.rule("RE-1", "RE-X1")
@pytest.mark.parametrize(
    ("method", "key", "repeatable"),
    [("GET", None, True), ("PUT", None, True), ("PUT", "k", True), ("POST", "k", True), ("POST", None, False)],
)
def test_what_may_be_repeated(method: Literal["GET", "PUT", "POST"], key: str | None, repeatable: bool) -> None:
    """Reads, PUTs and keyed writes; a POST without a key is the one that may not be."""
    assert Request("operation", method, "/", key=key).repeatable is repeatable


def test_a_segment_cannot_leave_its_place() -> None:
    """Slashes, queries and percent signs of an id stay inside its segment."""
    assert path("payments", "a/b?c#d%", 7) == "/payments/a%2Fb%3Fc%23d%25/7"
