"""The loop watch finds long turns of the event loop and names their code."""

import asyncio
import logging
import re
import time

import pytest
from tests.unit.broker.broker_bench import until

from ottla.env.loop_watch import LoopWatch
from ottla.model.config.definition import ConfigType, parse_value


def hold_the_loop(seconds: float) -> None:
    """Holds the loop in code of the package, which the watch must name."""

    class Slow(str):
        def strip(self, characters: str | None = None, /) -> str:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass
            return "1"

    parse_value("name", Slow("1"), ConfigType.INT)


def test_a_long_turn_is_logged_with_the_code_that_took_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> float:
        watch = LoopWatch(warn_ms=100)
        watch.start()
        await asyncio.sleep(0.05)
        hold_the_loop(0.5)
        await until(lambda: watch.longest_turn_ms >= 400)
        watch.stop()
        return watch.longest_turn_ms

    with caplog.at_level(logging.WARNING, "ottla.loop"):
        assert asyncio.run(main()) >= 400
    held = [message for message in caplog.messages if "parse_value" in message]
    assert held, caplog.messages
    assert re.fullmatch(
        r"the event loop was held for \d+ ms by model\.config\.definition:parse_value line \d+", held[0]
    )


def test_turns_below_the_limit_are_measured_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> float:
        watch = LoopWatch(warn_ms=0)
        watch.start()
        hold_the_loop(0.2)
        await until(lambda: watch.longest_turn_ms >= 100)
        longest = watch.longest_turn_ms
        watch.reset()
        assert watch.longest_turn_ms == 0
        watch.stop()
        return longest

    assert asyncio.run(main()) >= 100
    assert caplog.messages == []


def test_a_stopped_watch_leaves_no_thread_and_no_timer() -> None:
    async def main() -> None:
        watch = LoopWatch(warn_ms=100)
        watch.start()
        watch.stop()
        watch.stop()
        assert not watch._observer.is_alive()
        assert watch._timer is None

    asyncio.run(main())
