"""`Kafka`: a broker for tests, in a thread of this process."""

import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla.model.config import BrokerConfig
from ottla.testing.broker_configs import GROUP_CONFIGS, TIME_CONFIGS, users_configs
from ottla.testing.broker_log import BrokerLog
from ottla.testing.broker_thread import BrokerThread
from ottla.testing.controlled_disk import Volume
from ottla.testing.errors import BrokerStoppedError
from ottla.testing.fault_control import FaultControl, install_faults
from ottla.testing.faults import Fault
from ottla.testing.helpers import KafkaHelpers
from ottla.testing.time import AdvancedTime, advance, advanced_ms, apply_retention, compact

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_HOST = "127.0.0.1"


class Kafka(KafkaHelpers, FaultControl):
    """A broker on a free port of 127.0.0.1, with its data in a temporary directory.

    `config` has the broker's configs, in Kafka's names. Raises ValueError for those of ports and folders.
    """

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        KafkaHelpers.__init__(self)
        FaultControl.__init__(self)
        self._config = GROUP_CONFIGS | TIME_CONFIGS | users_configs(config)
        self._time = AdvancedTime()
        self._volume = Volume()
        self._log = BrokerLog()
        self._thread: BrokerThread | None = None
        self._data: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for the `bootstrap.servers` of clients. Raises BrokerStoppedError if the broker does not run."""
        host, port = self._running.address
        return f"{host}:{port}"

    @property
    def log(self) -> BrokerLog:
        return self._log

    @property
    def _may_lose_responses(self) -> bool:
        return bool(self._faults)

    @property
    def _running(self) -> BrokerThread:
        if self._thread is None:
            raise BrokerStoppedError(
                "this Kafka does not run. Use it inside `with Kafka() as kafka`, or call start()"
            )
        if not self._thread.is_running:
            raise BrokerStoppedError(f"this Kafka has failed. Its log:\n{self._log.text()}")
        return self._thread

    def start(self) -> None:
        """Starts the broker, or starts it again after `stop`, with its data and on its port."""
        if self._thread is not None and self._thread.is_running:
            return
        if self._data is None:
            self._data = tempfile.TemporaryDirectory(prefix="ottla-testing-", ignore_cleanup_errors=True)
            self._log.open()
        of_each_start = {"log.dirs": self._data.name, "listeners": f"PLAINTEXT://{_HOST}:{self._port}"}
        try:
            self._thread = BrokerThread(BrokerConfig(self._config | of_each_start), self._time, self._volume)
        except BaseException:
            if self._port == 0:  # it has never run
                self.close()
            raise
        self._port = self._thread.address[1]
        if self._faults:
            self._apply_faults(self._faults)

    def stop(self) -> None:
        """Stops the broker cleanly, and keeps its data. Clients lose their connections."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advances the broker's time. All timers that are due by then fire, and retention is applied.

        The time of clients is not advanced: their new records are old for the broker.
        """
        milliseconds = advanced_ms(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._running.call(lambda broker: advance(broker, self._time, milliseconds))

    def apply_retention(self, topic: str) -> None:
        """Removes the records that retention.ms and retention.bytes allow to remove, at once."""
        self._running.call(lambda broker: apply_retention(broker, topic))

    def compact(self, topic: str) -> None:
        """Compacts a topic at once, with its newest records."""
        self._running.call(lambda broker: compact(broker, topic))

    def fill_disk(self) -> None:
        """From now on the broker can write nothing to its disk. It stops, as Kafka, when it has no other directory."""
        self._volume.is_full = True

    def free_disk(self) -> None:
        """The disk has room again. A broker that has stopped because of it serves again after `restart`."""
        self._volume.is_full = False

    def _check_running(self) -> None:
        _ = self._running

    def _apply_faults(self, faults: Sequence[Fault]) -> None:
        async def run(broker: "Broker") -> None:
            install_faults(broker, faults)

        self._running.call(run)

    def close(self) -> None:
        """Stops the broker and removes its data."""
        self._close_clients()
        try:
            self.stop()
        finally:
            self._log.close()
            if self._data is not None:
                self._data.cleanup()
                self._data = None
            self._port = 0
