import pytest

from tests.component.cli.terminal import Terminal, terminal


@pytest.fixture
def bare_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """A terminal where nothing is configured."""
    return terminal(monkeypatch, capsys)


@pytest.fixture
def operator(bare_terminal: Terminal, pg_dsn: str) -> Terminal:
    """The terminal of an operator of a migrated, otherwise empty database."""
    bare_terminal.set(ORDERS_PG__DSN=pg_dsn)
    return bare_terminal
