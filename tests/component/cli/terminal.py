"""Commands in the test's own process: what they print, and how they end."""

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from app.cli import main


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Terminal:
    """Runs commands one after the other, with an environment of nothing but `environ` and what is not ours."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def set(self, **environ: str) -> None:
        for name, value in environ.items():
            self.monkeypatch.setenv(name, value)

    def run(self, *arguments: str) -> Done:
        self.monkeypatch.setattr(sys, "argv", ["app", *arguments])
        self.capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, err = self.capsys.readouterr()
        return Done(code, out, err)


def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    for name in [name for name in os.environ if name.startswith("ORDERS_")]:
        monkeypatch.delenv(name)
    return Terminal(monkeypatch, capsys)
