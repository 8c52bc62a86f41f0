"""What the process of a test and the process of a node say to each other, over a pair of sockets.

The test's process sends a NodeState first, and then calls and answers. The node replies to calls, reports requests that
a fault has met, and asks for the response of a function of `control`, which lives in the test's process.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.testing.controlled_network import WHOLE, Cut
from ottla.testing.faults import Action


class FaultSpec(NamedTuple):
    """A fault without its count and its function. `times` are those that are left."""

    id: int
    action: Action
    api: ApiKey
    times: int | None
    topic: str | None
    partition: int | None
    error: ErrorCode
    delay_s: float
    version: int


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a node has from its start on."""

    advanced_ms: int = 0
    is_disk_full: bool = False
    cut: Cut = WHOLE
    faults: tuple[FaultSpec, ...] = ()


class Call(NamedTuple):
    id: int
    name: str
    arguments: tuple[Any, ...]


class Reply(NamedTuple):
    id: int
    error: Exception | None


class Met(NamedTuple):
    fault_id: int


class Question(NamedTuple):
    """A request, for the function of a fault."""

    id: int
    fault_id: int
    api: ApiKey
    version: int
    client_id: str
    message: Any


class Answer(NamedTuple):
    id: int
    response: Any
    error: Exception | None
