from collections import deque


class Window:
    """The last `size` samples of how calls ended, with their rates kept up to date (CB-2)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._samples: deque[tuple[bool, bool]] = deque()
        self._failures = 0
        self._slow = 0

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, *, failed: bool, slow: bool) -> None:
        if len(self._samples) == self.size:
            left_failed, left_slow = self._samples.popleft()
            self._failures -= left_failed
            self._slow -= left_slow
        self._samples.append((failed, slow))
        self._failures += failed
        self._slow += slow

    @property
    def failure_rate(self) -> float:
        return self._failures / len(self._samples) if self._samples else 0.0

    @property
    def slow_rate(self) -> float:
        return self._slow / len(self._samples) if self._samples else 0.0
