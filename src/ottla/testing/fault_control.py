"""The faults of one broker: adds and removes them while it runs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.testing.errors import BrokerStoppedError
from ottla.testing.faults import Action, ControlFunction, Fault
from ottla.testing.names import find_api, find_error

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_FAILS_BY_TOPIC = "Produce, Fetch, ListOffsets, Metadata, OffsetCommit, TxnOffsetCommit, DeleteRecords"


class FaultControl(ABC):
    """The methods of `Kafka`, and of a node of a cluster, for faults.

    A fault meets the next `times` requests; None means every request.

    APIs and errors have Kafka's names, e.g. "OffsetCommit" and "NOT_LEADER_OR_FOLLOWER".
    """

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    @abstractmethod
    def _check_running(self) -> None:
        """Raises BrokerStoppedError if the broker does not run."""

    @abstractmethod
    def _apply_faults(self, faults: Sequence[Fault]) -> None:
        """Makes them the faults of the broker. Raises BrokerStoppedError if it does not run."""

    def fail(
        self,
        api: str | int,
        error: str | int | ErrorCode,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Fault:
        """Responds with an error, without serving the request. With `topic`, only that topic or partition fails."""
        key = find_api(api)
        if topic is not None:
            from ottla.testing.request_split import SPLIT_APIS

            if key not in (*SPLIT_APIS, ApiKey.METADATA):
                raise ValueError(f"{api} cannot fail for one topic. APIs that can: {_FAILS_BY_TOPIC}")
        code = find_error(error)
        return self._add(Fault(Action.FAIL, key, times=times, topic=topic, partition=partition, error=code))

    def delay(self, api: str | int, seconds: float, *, times: int | None = 1) -> Fault:
        """Serves the request after some time."""
        return self._add(Fault(Action.DELAY, find_api(api), times=times, delay_s=seconds))

    def disconnect(self, api: str | int, *, times: int | None = 1) -> Fault:
        """Closes the connection instead of serving the request."""
        return self._add(Fault(Action.DISCONNECT, find_api(api), times=times))

    def drop_response(self, api: str | int, *, times: int | None = 1) -> Fault:
        """Serves the request, and then closes the connection instead of responding."""
        return self._add(Fault(Action.DROP_RESPONSE, find_api(api), times=times))

    def control(self, api: str | int, function: ControlFunction, *, times: int | None = None) -> Fault:
        """Calls a function with a ControlledRequest, on the broker's thread. It must not block.

        The broker serves the request if the function returns None. Otherwise the function's response is sent: kio's
        message in the version of the request, or the result of `request.error_response(error)`.
        """
        return self._add(Fault(Action.CONTROL, find_api(api), times=times, function=function))

    def max_version(self, api: str | int, version: int) -> Fault:
        """Plays an older broker: the API has no later version than this one."""
        key = find_api(api)
        spec = APIS[key]
        if key is ApiKey.API_VERSIONS or not spec.min_version <= version <= spec.max_version:
            raise ValueError(
                f"max_version({api!r}, {version}): expected v{spec.min_version} to v{spec.max_version} of an API other "
                "than ApiVersions"
            )
        return self._add(Fault(Action.MAX_VERSION, key, version=version))

    def remove_fault(self, fault: Fault) -> None:
        self._set_faults([each for each in self._faults if each is not fault])

    def clear_faults(self) -> None:
        if self._faults:
            self._set_faults([])

    def _add(self, fault: Fault) -> Fault:
        """Raises BrokerStoppedError if the broker does not run."""
        faults = [*(each for each in self._faults if not each.is_used_up), fault]
        self._check_running()
        self._set_faults(faults)
        return fault

    def _set_faults(self, faults: list[Fault]) -> None:
        """A broker that does not run has the faults from its next start on."""
        self._faults = faults
        with suppress(BrokerStoppedError):
            self._apply_faults(faults)


def install_faults(broker: "Broker", faults: Sequence[Fault]) -> None:
    """Puts the dispatch with faults before that of the broker if there are faults, and takes it away otherwise."""
    from ottla.testing.fault_dispatch import FaultDispatch

    installed = broker.server.dispatch
    broker.server.dispatch = installed.replaced if isinstance(installed, FaultDispatch) else installed
    if faults:
        broker.server.dispatch = FaultDispatch(broker, tuple(faults))
