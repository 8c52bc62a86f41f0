"""Faults: what a broker does with some of the requests of its clients, instead of serving them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey


class Action(Enum):
    FAIL = "fail"
    DELAY = "delay"
    DISCONNECT = "disconnect"
    DROP_RESPONSE = "drop response"
    CONTROL = "control"
    MAX_VERSION = "max version"


@dataclass(frozen=True, slots=True)
class ControlledRequest:
    """A request, as the function of `control` gets it. `message` is kio's, in the client's version."""

    api: ApiKey
    version: int
    client_id: str
    message: Any
    error_response: Callable[["str | int | ErrorCode"], Any]


ControlFunction = Callable[[ControlledRequest], Any]


class Fault:
    """One fault. `count` says how many requests it has met."""

    def __init__(
        self,
        action: Action,
        api: ApiKey,
        *,
        times: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        error: ErrorCode = ErrorCode.none,
        delay_s: float = 0.0,
        function: ControlFunction | None = None,
        version: int = 0,
    ) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: expected a positive number, or None for every request")
        if partition is not None and topic is None:
            raise ValueError(f"partition={partition} needs a topic")
        if delay_s < 0:
            raise ValueError(f"a delay of {delay_s} s: expected a positive number")
        self.action = action
        self.api = api
        self.times = times
        self.topic = topic
        self.partition = partition
        self.error = error
        self.delay_s = delay_s
        self.function = function
        self.version = version
        self.synchronize: Callable[[], None] = lambda: None  # learns of requests that another process has met
        self._count = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        left = "every time" if self.times is None else f"{self.times_left} times"
        return f"<Fault {self.action.value} {self.api.name} {left}>"

    @property
    def count(self) -> int:
        self.synchronize()
        return self._count

    @property
    def times_left(self) -> int | None:
        """None: every time."""
        return None if self.times is None else self.times - self._count

    @property
    def is_used_up(self) -> bool:
        return self.times_left == 0

    def take(self) -> bool:
        """Counts a request. Returns whether the fault still applies."""
        with self._lock:
            if self.is_used_up:
                return False
            self._count += 1
            return True

    def covers(self, topic: str, partition: int | None) -> bool:
        """Whether it concerns a partition; the partition is None for APIs that only name topics."""
        if self.topic is not None and topic != self.topic:
            return False
        return self.partition is None or partition is None or partition == self.partition
