"""The life of a broker in its cluster, with a controller that the test plays."""

import asyncio
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.lifecycle import BrokerLifecycle, BrokerState, LifecycleSettings
from ottla.core.controller.commands import BrokerHeartbeat, HeartbeatReply, RegisterBroker
from ottla.model.errors import ErrorCode, KafkaError
from ottla.sim.loop import run

SETTINGS = LifecycleSettings(heartbeat_interval_s=2, session_timeout_s=9, registration_timeout_s=60)
REGISTRATION = RegisterBroker(4, uuid.UUID(int=1), (), (), ())


class Controller:
    """Answers each command with `answer(command)`, or raises what it raises."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.heartbeats: list[BrokerHeartbeat] = []

    async def submit(self, command: Any, timeout_s: float | None = None) -> Any:
        if isinstance(command, BrokerHeartbeat):
            self.heartbeats.append(command)
        await asyncio.sleep(0.01)
        return self.answer(command)


class Life:
    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.controller = Controller(answer)
        self.metadata: Any = SimpleNamespace(image=SimpleNamespace(offset=5))
        self.failures: list[Exception] = []
        controller: Any = self.controller
        self.lifecycle = BrokerLifecycle(controller, self.metadata, SETTINGS, self.failures.append)


def usual(command: Any) -> Any:
    """A controller that has registered the broker at offset 20."""
    if isinstance(command, RegisterBroker):
        return 20
    is_caught_up = command.current_metadata_offset >= 20
    return HeartbeatReply(is_caught_up, command.want_fence or not is_caught_up, command.want_shut_down)


def test_a_broker_registers_catches_up_and_is_unfenced() -> None:
    async def main() -> None:
        life = Life(usual)
        lifecycle = life.lifecycle
        await lifecycle.register(REGISTRATION)
        assert (lifecycle.broker_epoch, lifecycle.state) == (20, BrokerState.FENCED)
        catching_up = asyncio.create_task(lifecycle.catch_up())
        await asyncio.sleep(1)
        assert not catching_up.done()
        life.metadata.image.offset = 21
        await catching_up
        assert lifecycle.state is BrokerState.FENCED
        assert all(heartbeat.want_fence for heartbeat in life.controller.heartbeats)
        await lifecycle.unfence()
        assert lifecycle.state.value == "running"
        await lifecycle.close()

    run(main())


def test_heartbeats_come_regularly_and_at_once_to_a_new_controller() -> None:
    async def main() -> None:
        life = Life(usual)
        await life.lifecycle.register(REGISTRATION)
        await asyncio.sleep(0.1)
        before = len(life.controller.heartbeats)
        await asyncio.sleep(10)
        assert len(life.controller.heartbeats) - before == 5
        before = len(life.controller.heartbeats)
        life.lifecycle.controller_changed()
        await asyncio.sleep(0.1)
        assert len(life.controller.heartbeats) == before + 1
        await life.lifecycle.close()

    run(main())


def test_a_lost_connection_is_followed_by_a_heartbeat_but_not_by_a_flood() -> None:
    async def main() -> None:
        life = Life(usual)
        await life.lifecycle.register(REGISTRATION)
        await asyncio.sleep(0.1)
        before = len(life.controller.heartbeats)
        life.lifecycle.controller_disconnected()
        await asyncio.sleep(0.2)
        assert len(life.controller.heartbeats) == before + 1

        def closes_every_connection(command: Any) -> Any:
            life.lifecycle.controller_disconnected()
            return usual(command)

        life.controller.answer = closes_every_connection
        life.lifecycle.controller_changed()
        await asyncio.sleep(10)
        assert len(life.controller.heartbeats) < before + 110
        await life.lifecycle.close()

    run(main())


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.unknown_server_error, "a bug"), ZeroDivisionError("a bug")]
)
def test_a_heartbeat_that_failed_is_repeated_soon_but_not_without_pause(error: Exception) -> None:
    is_broken = False

    def answer(command: Any) -> Any:
        if is_broken:
            raise error
        return usual(command)

    async def main() -> None:
        nonlocal is_broken
        life = Life(answer)
        await life.lifecycle.register(REGISTRATION)
        await asyncio.sleep(0.1)
        before, is_broken = len(life.controller.heartbeats), True
        life.lifecycle.controller_changed()
        await asyncio.sleep(0.3)
        assert len(life.controller.heartbeats) >= before + 2
        await asyncio.sleep(20)
        assert len(life.controller.heartbeats) < before + 20
        life.metadata.image.offset, is_broken = 30, False
        await life.lifecycle.unfence()
        await life.lifecycle.close()

    run(main())


def test_a_failed_directory_is_reported_at_once_and_with_every_later_heartbeat() -> None:
    async def main() -> None:
        life = Life(usual)
        await life.lifecycle.register(REGISTRATION)
        await asyncio.sleep(1)
        before = len(life.controller.heartbeats)
        offline = (uuid.UUID(int=7 << 80),)
        life.lifecycle.directories_went_offline(offline)
        await asyncio.sleep(0.1)
        assert len(life.controller.heartbeats) == before + 1
        await asyncio.sleep(10)
        assert {heartbeat.offline_log_dirs for heartbeat in life.controller.heartbeats[before:]} == {offline}
        await life.lifecycle.close()

    run(main())


def test_an_id_that_is_taken_is_asked_for_until_the_former_process_is_fenced() -> None:
    attempts = iter([ErrorCode.duplicate_broker_registration] * 3)

    def answer(command: Any) -> Any:
        code = next(attempts, None)
        if code is not None:
            raise KafkaError(code, "taken")
        return usual(command)

    async def main() -> None:
        life = Life(answer)
        await life.lifecycle.register(REGISTRATION)
        assert life.lifecycle.broker_epoch == 20
        await life.lifecycle.close()

    run(main())


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.duplicate_broker_registration, "node.id=4 belongs to another broker that is running"),
        (ErrorCode.inconsistent_cluster_id, "belongs to another cluster than its controllers"),
        (ErrorCode.unsupported_version, "broker 4 could not register"),
    ],
)
def test_a_rejected_registration_says_what_is_wrong(code: ErrorCode, message: str) -> None:
    def answer(command: Any) -> Any:
        raise KafkaError(code, "no")

    with pytest.raises(KafkaError, match=message) as rejected:
        run(Life(answer).lifecycle.register(REGISTRATION))
    assert rejected.value.code is code


@pytest.mark.parametrize("code", [ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered])
def test_a_broker_whose_id_another_process_has_taken_fails(code: ErrorCode) -> None:
    is_taken = False

    def answer(command: Any) -> Any:
        if is_taken:
            raise KafkaError(code, "")
        return usual(command)

    async def main() -> None:
        nonlocal is_taken
        life = Life(answer)
        await life.lifecycle.register(REGISTRATION)
        is_taken = True
        await asyncio.sleep(3)
        (failure,) = life.failures
        assert "no two nodes have the same node.id" in str(failure)
        await life.lifecycle.shut_down()  # ends at once: nobody answers
        await life.lifecycle.close()

    run(main())


def test_a_broker_whose_id_is_taken_while_it_catches_up_does_not_wait_for_a_reply_that_cannot_come() -> None:
    heartbeats = 0

    def answer(command: Any) -> Any:
        nonlocal heartbeats
        if isinstance(command, BrokerHeartbeat):
            heartbeats += 1
            if heartbeats > 2:
                raise KafkaError(ErrorCode.stale_broker_epoch, "")
        return usual(command)

    async def main() -> None:
        life = Life(answer)
        await life.lifecycle.register(REGISTRATION)
        await asyncio.sleep(0.1)
        catching_up = asyncio.create_task(life.lifecycle.catch_up())
        await asyncio.sleep(0.03)
        assert heartbeats == 2  # the next comes between two questions of `catch_up`
        life.lifecycle.controller_changed()
        with pytest.raises(KafkaError, match="another process registered with its node"):
            await asyncio.wait_for(catching_up, 60)
        await life.lifecycle.close()

    run(main())


def test_a_controller_that_is_away_for_a_while_does_no_harm() -> None:
    is_away = False

    def answer(command: Any) -> Any:
        if is_away:
            raise KafkaError(ErrorCode.not_controller, "no leader")
        return usual(command)

    async def main() -> None:
        nonlocal is_away
        life = Life(answer)
        life.metadata.image.offset = 30
        await life.lifecycle.register(REGISTRATION)
        is_away = True
        unfencing = asyncio.create_task(life.lifecycle.unfence())
        await asyncio.sleep(20)
        assert not unfencing.done()
        assert life.failures == []
        is_away = False
        await unfencing
        await life.lifecycle.close()

    run(main())


def test_a_shutdown_waits_for_the_controller_but_not_for_ever() -> None:
    async def main() -> None:
        life = Life(usual)
        life.metadata.image.offset = 30
        await life.lifecycle.register(REGISTRATION)
        await life.lifecycle.unfence()
        await life.lifecycle.shut_down()
        assert life.controller.heartbeats[-1].want_shut_down
        await life.lifecycle.close()

        def away(command: Any) -> Any:
            if isinstance(command, RegisterBroker):
                return 20
            raise KafkaError(ErrorCode.not_controller, "no leader")

        alone = Life(away)
        await alone.lifecycle.register(REGISTRATION)
        started_s = asyncio.get_running_loop().time()
        await alone.lifecycle.shut_down()
        assert asyncio.get_running_loop().time() - started_s < 10
        await alone.lifecycle.close()

    run(main())
