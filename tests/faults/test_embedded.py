"""The embedded PostgreSQL dies under the service that owns it."""

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Self

import httpx

from tests.commands import new_data_dir
from tests.processes import Process, processes, wait_until
from tests.service import ORDER

NO_DSN = "null"


class Client:
    """Places orders one after the other, and remembers those that were accepted."""

    def __init__(self, service: Process) -> None:
        self._http = httpx.Client(base_url=service.url, timeout=20, trust_env=False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._place_all)
        self.accepted: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._http.close()

    def more(self, count: int) -> None:
        """Wait until so many more have been accepted."""
        wanted = len(self.accepted) + count
        wait_until(lambda: len(self.accepted) >= wanted, 60, f"{count} more orders are accepted")

    def status(self, order_id: int) -> str:
        return str(self._http.get(f"/orders/{order_id}").json().get("status"))

    def _place_all(self) -> None:
        while not self._stop.is_set():
            answer = self._http.post("/orders", json=ORDER)
            if answer.status_code == 202:
                self.accepted.append(answer.json()["orderId"])
            else:
                assert answer.status_code == 503
                time.sleep(0.2)


def all_completed(client: Client, order_ids: list[int]) -> bool:
    return all(client.status(order_id) == "COMPLETED" for order_id in order_ids)


def test_a_killed_server_is_started_again_and_has_lost_nothing(tmp_path: Path) -> None:
    """Killed under load, twice, it comes back by itself, and each order that was accepted gets to its end."""
    with new_data_dir() as data_dir, processes(NO_DSN, tmp_path) as started:
        started.sandbox()
        started.environ |= {"ORDERS_PG__DATA_DIR": str(data_dir), "ORDERS_SHUTDOWN__LEAD": "0"}
        service = started.serve()
        with Client(service) as client:
            for _ in range(2):
                client.more(20)
                os.kill(int((data_dir / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)
            client.more(20)
        with Client(service) as client_after:
            final = partial(all_completed, client_after, client.accepted)
            wait_until(final, 60, "all are completed")
        assert "was started again" in service.log.read_text()
        assert service.terminate() == 0
        assert not (data_dir / "postmaster.pid").exists()
