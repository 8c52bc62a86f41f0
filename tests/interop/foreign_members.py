"""Members of a group with kafka-python, aiokafka and kafkajs, each a process; see `foreign_member` for its events."""

import json
import sys
from collections.abc import Sequence

from tests.interop.group_clients import HEARTBEAT_MS, SESSION_MS, EventProcess, MemberProcess
from tests.interop.kafkajs import SOURCE, ensure_kafkajs


class ForeignMember(MemberProcess):
    """Reports the same events as librdkafka's members."""

    def __init__(
        self,
        client: str,
        bootstrap: str,
        group_id: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        earliest: bool = True,
    ) -> None:
        arguments: dict[str, object] = {
            "bootstrap": bootstrap,
            "group": group_id,
            "topics": list(topics),
            "pattern": pattern,
            "earliest": earliest,
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
        }
        EventProcess.__init__(self, _command(client, arguments))


def _command(client: str, arguments: dict[str, object]) -> list[str]:
    if client == "kafkajs":
        kafkajs = {"kafkajs_from": str(ensure_kafkajs())}
        return ["node", str(SOURCE / "member.mjs"), json.dumps(arguments | kafkajs)]
    return [sys.executable, "-m", "tests.interop.foreign_member", client, json.dumps(arguments)]


class ForeignMembers:
    """The members that a test has started."""

    def __init__(self) -> None:
        self._started: list[ForeignMember] = []

    def start(
        self, client: str, bootstrap: str, group_id: str, *topics: str, **options: object
    ) -> ForeignMember:
        member = ForeignMember(client, bootstrap, group_id, topics, **options)  # type: ignore[arg-type]
        self._started.append(member)
        return member

    def kill_all(self) -> None:
        for member in self._started:
            member.kill()
