"""Fences and unfences brokers by their heartbeats, and shuts them down (KIP-631, KIP-841). As Kafka's
BrokerHeartbeatManager.
"""

from collections.abc import Collection
from enum import Enum, auto

from ottla.core.controller.broker_commands import BrokerDisconnected, BrokerHeartbeat, HeartbeatReply
from ottla.core.controller.brokers import registered_broker
from ottla.core.controller.cluster_edit import ClusterEdit
from ottla.core.controller.decision import ControllerDecision
from ottla.core.controller.image import BrokerImage, MetadataImage
from ottla.core.controller.partition_commands import ElectLostLeaders
from ottla.core.controller.sessions import BrokerSessions
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import (
    FENCE,
    UNFENCE,
    BrokerRegistrationChangeRecord,
)


class _State(Enum):
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUT_DOWN = auto()  # fenced, and the broker may exit


def decide_heartbeat(
    edit: ClusterEdit, sessions: BrokerSessions, command: BrokerHeartbeat, now_ms: int
) -> ControllerDecision[HeartbeatReply]:
    broker = registered_broker(edit.image, command.broker_id, command.broker_epoch)
    current = _current_state(broker)
    new = _next_state(edit, sessions, broker, current, command)
    online = [each for each in broker.log_dirs if each not in command.offline_log_dirs]
    if online and len(online) < len(broker.log_dirs):
        edit.change_broker(
            broker,
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=tuple(online)
            ),
        )
        if new is current or new is _State.UNFENCED:  # the other states remove the broker from all ISRs
            edit.remove_offline_replicas(broker.broker_id)
    _cordon(edit, broker, command)
    elects_all = True
    if new is not current and edit.is_complete:
        elects_all = _enter(edit, command.broker_id, new)
    is_fenced = new in (_State.FENCED, _State.SHUT_DOWN)
    if not is_fenced:
        offset = command.current_metadata_offset
        session = sessions.touch(broker.broker_id, now_ms, offset, command.connection)
        if new is _State.CONTROLLED_SHUTDOWN and (new is not current or session.shutdown_offset is None):
            session.shutdown_offset = edit.image.offset + len(edit.records)
    elif edit.is_complete and new is _State.SHUT_DOWN:
        sessions.end(broker.broker_id)
    elif edit.is_complete:
        sessions.touch_fenced(broker.broker_id, now_ms, command.connection)
    reply = HeartbeatReply(_is_caught_up(broker, command), is_fenced, new is _State.SHUT_DOWN)
    decision = edit.decision(reply)
    return decision if elects_all else decision._replace(follow_up=ElectLostLeaders())


def decide_fence_stale_brokers(
    edit: ClusterEdit, sessions: BrokerSessions, now_ms: int
) -> ControllerDecision[None]:
    """Several brokers if all their partitions fit. The others stay expired, so the next timeout is in the past.

    The unclean elections that had to wait for the end of a session follow.
    """
    for broker_id in sessions.expired(now_ms):
        if edit.records and not edit.has_room_for(broker_id):
            break
        sessions.suspect(broker_id, now_ms)
        _enter(edit, broker_id, _State.FENCED)
        if not edit.is_complete:
            break
        sessions.end(broker_id)
    decision = edit.decision(None)
    if edit.is_complete and sessions.end_suspicions(now_ms):
        return decision._replace(follow_up=ElectLostLeaders())
    return decision


def decide_broker_disconnected(
    image: MetadataImage, sessions: BrokerSessions, command: BrokerDisconnected, now_ms: int
) -> ControllerDecision[None]:
    broker = image.brokers.get(command.broker_id)
    if broker is not None and broker.epoch == command.broker_epoch:
        sessions.disconnected(command.broker_id, command.connection, now_ms)
    return ControllerDecision((), None)


def _is_caught_up(broker: BrokerImage, command: BrokerHeartbeat) -> bool:
    # The broker epoch is the offset of its registration.
    return command.current_metadata_offset >= broker.epoch


def _current_state(broker: BrokerImage) -> _State:
    if broker.fenced:
        return _State.FENCED
    return _State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else _State.UNFENCED


def _next_state(
    edit: ClusterEdit,
    sessions: BrokerSessions,
    broker: BrokerImage,
    current: _State,
    command: BrokerHeartbeat,
) -> _State:
    if current is _State.CONTROLLED_SHUTDOWN:
        return _after_controlled_shutdown(edit.image, sessions, broker)
    if command.want_shut_down:
        session = sessions.get(broker.broker_id)
        # An earlier part of this decision may have moved the last leadership away; the other brokers must learn of it.
        has_begun = session is not None and session.shutdown_offset is not None
        leads = has_begun or edit.index.leads(broker.broker_id)
        if current is _State.UNFENCED and not has_begun and sessions.doubts_another(broker.broker_id):
            # The shutdown takes this broker out of all ISRs. If all others in an ISR are dead, no eligible replica with
            # all records would be left. Within seconds they send a heartbeat, or are fenced and leave the ISR first.
            return current
        if current is _State.FENCED or command.want_fence or not leads:
            return _State.SHUT_DOWN
        return _State.CONTROLLED_SHUTDOWN
    if command.want_fence or not _has_directory(broker, command.offline_log_dirs):
        return _State.FENCED
    if current is _State.UNFENCED:
        return current
    # A process that was fenced during its controlled shutdown never serves again.
    may_serve = _is_caught_up(broker, command) and not broker.in_controlled_shutdown
    return _State.UNFENCED if may_serve else _State.FENCED


def _has_directory(broker: BrokerImage, offline: Collection[object]) -> bool:
    return not broker.log_dirs or any(each not in offline for each in broker.log_dirs)


def _after_controlled_shutdown(image: MetadataImage, sessions: BrokerSessions, broker: BrokerImage) -> _State:
    """The broker leads nothing any more, and may stop when all active brokers know that."""
    session = sessions.get(broker.broker_id)
    # A controller that has become active since does not know the offset; the newest one is safe.
    needed = image.offset if session is None or session.shutdown_offset is None else session.shutdown_offset
    active = [other.broker_id for other in image.brokers.values() if other.is_active]
    known = sessions.lowest_offset(active)
    return _State.SHUT_DOWN if known is None or known >= needed else _State.CONTROLLED_SHUTDOWN


def _enter(edit: ClusterEdit, broker_id: int, state: _State) -> bool:
    """Returns False if there are partitions for which leaders must still be elected."""
    broker = edit.broker(broker_id)
    if broker is None:
        return True
    if state is _State.UNFENCED:
        edit.change_broker(broker, _change(broker, fenced=UNFENCE))
        return edit.elect_where_leaderless(broker_id)
    if state is _State.CONTROLLED_SHUTDOWN:
        edit.change_broker(broker, _change(broker, in_controlled_shutdown=1))
    elif not broker.fenced:
        edit.change_broker(broker, _change(broker, fenced=FENCE))
    edit.remove_from_isrs(broker_id)
    return True


def _cordon(edit: ClusterEdit, broker: BrokerImage, command: BrokerHeartbeat) -> None:
    """KIP-1066. The metadata keep the directories while the broker is away. Raises KafkaError."""
    cordoned = command.cordoned_log_dirs
    if cordoned is None or not edit.image.has_cordoned_directories:
        return
    if unknown := set(cordoned).difference(broker.log_dirs):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Broker {broker.broker_id} has no directory {min(map(str, unknown))} that it could cordon",
        )
    if set(cordoned) != set(broker.cordoned_log_dirs or ()):
        edit.change_broker(
            edit.broker(broker.broker_id) or broker,
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=cordoned
            ),
        )


def _change(
    broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
