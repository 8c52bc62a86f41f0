"""Registers and unregisters brokers and controllers (KIP-631, KIP-919). As Kafka's ClusterControlManager."""

import uuid

from ottla.core.controller.broker_commands import RegisterBroker, RegisterController, UnregisterBroker
from ottla.core.controller.cluster_edit import ClusterEdit
from ottla.core.controller.decision import ControllerDecision
from ottla.core.controller.image import (
    BrokerImage,
    ControllerImage,
    MetadataImage,
    is_reserved_directory,
)
from ottla.core.controller.partition_commands import ElectLostLeaders
from ottla.core.controller.sessions import BrokerSessions
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import (
    FeatureRange,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)


def decide_register_broker(
    edit: ClusterEdit, sessions: BrokerSessions, command: RegisterBroker, new_epoch: int, now_ms: int
) -> ControllerDecision[int]:
    """`new_epoch` is the offset of the first record, which is the registration: so it is above every earlier epoch.

    Earlier parts of the decision have no registration, and their epoch no meaning.
    """
    before = edit.image.brokers.get(command.broker_id)
    is_new = before is None or before.incarnation_id != command.incarnation_id
    if before is not None and is_new:
        _check_no_other_process(edit, sessions, command, before, now_ms)
    _check_directories(edit.image, command)
    _check_features(edit, command)
    # A process that registers once more only changes its properties.
    is_amended = before is not None and not is_new
    epoch = before.epoch if before is not None and is_amended else new_epoch
    edit.register_broker(
        RegisterBrokerRecord(
            broker_id=command.broker_id,
            incarnation_id=command.incarnation_id,
            broker_epoch=epoch,
            end_points=command.end_points,
            features=command.features,
            rack=command.rack,
            fenced=before.fenced if before is not None and is_amended else True,
            in_controlled_shutdown=(
                before.in_controlled_shutdown if before is not None and is_amended else False
            ),
            log_dirs=command.log_dirs,
            cordoned_log_dirs=_still_cordoned(before, command),
        )
    )
    if is_new:
        was_clean = before is not None and before.epoch == command.previous_broker_epoch
        edit.remove_from_isrs(command.broker_id, lost_records=not was_clean)
        if edit.is_complete:
            sessions.register(command.broker_id, now_ms)
        return edit.decision(epoch)
    edit.remove_offline_replicas(command.broker_id)
    if not edit.is_complete or edit.elect_where_leaderless(command.broker_id):
        return edit.decision(epoch)
    return edit.decision(epoch)._replace(follow_up=ElectLostLeaders())


def decide_unregister_broker(
    edit: ClusterEdit, sessions: BrokerSessions, command: UnregisterBroker
) -> ControllerDecision[None]:
    broker = edit.image.brokers.get(command.broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"Broker ID {command.broker_id} is not currently registered"
        )
    if not broker.fenced:
        # Kafka unregisters it, and leaves a broker that serves nobody. A stray request must not take a broker down.
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Broker {command.broker_id} is running. Stop it before you unregister it; if it has died, wait until its "
            "session has ended",
        )
    edit.unregister_broker(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch))
    edit.remove_from_isrs(broker.broker_id)
    if edit.is_complete:
        sessions.end(broker.broker_id)
    return edit.decision(None)


def decide_register_controller(image: MetadataImage, command: RegisterController) -> ControllerDecision[None]:
    new = ControllerImage(command.controller_id, command.incarnation_id, command.end_points, command.features)
    if image.controllers.get(command.controller_id) == new:
        return ControllerDecision((), None)
    record = RegisterControllerRecord(
        controller_id=command.controller_id,
        incarnation_id=command.incarnation_id,
        end_points=command.end_points,
        features=command.features,
    )
    return ControllerDecision((record,), None)


def _still_cordoned(
    before: BrokerImage | None, command: RegisterBroker
) -> tuple[uuid.UUID | None, ...] | None:
    """KIP-1066: a broker reports its cordoned directories once it knows its dynamic configs. Until then they remain."""
    if before is None or before.cordoned_log_dirs is None:
        return None
    return tuple(directory for directory in before.cordoned_log_dirs if directory in command.log_dirs)


def registered_broker(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Raises KafkaError if the broker is not registered, or a later process of it is."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.stale_broker_epoch,
            f"Expected broker epoch {broker.epoch} for broker {broker_id}, but got broker epoch {broker_epoch}",
        )
    return broker


def _check_no_other_process(
    edit: ClusterEdit, sessions: BrokerSessions, command: RegisterBroker, other: BrokerImage, now_ms: int
) -> None:
    if command.is_local or other.in_controlled_shutdown or not sessions.is_alive(other.broker_id, now_ms):
        return
    address = ", ".join(f"{each.host}:{each.port}" for each in other.end_points) or "an unknown address"
    raise KafkaError(
        ErrorCode.duplicate_broker_registration,
        f"Another process is registered as broker {other.broker_id}, at {address}, and its session is valid. If this "
        "broker was restarted, it can register when the session of its earlier process has ended, at most "
        f"{edit.settings.session_timeout_ms} ms after its last heartbeat. Otherwise set another node.id, or stop the "
        "other process.",
    )


def _check_directories(image: MetadataImage, command: RegisterBroker) -> None:
    reason = None
    directories = command.log_dirs
    if not directories:
        reason = "No directories specified in request"
    elif any(is_reserved_directory(directory) for directory in directories):
        reason = "Reserved directory ID in request"
    elif len(set(directories)) != len(directories):
        reason = "Duplicate directory ID in request"
    else:
        for other in image.brokers.values():
            shared = set(directories).intersection(other.log_dirs)
            if other.broker_id != command.broker_id and shared:
                reason = (
                    f"Broker {other.broker_id} is already registered with directory {min(map(str, shared))}"
                )
                break
    if reason is not None:
        raise KafkaError(ErrorCode.invalid_registration, reason)


def _check_features(edit: ClusterEdit, command: RegisterBroker) -> None:
    """A feature that is not finalized has level 0, and a feature that the broker does not name is supported at 0.

    A feature that this controller does not support either came with the log of another release, such as Apache Kafka's
    share.version. It is not demanded, otherwise this release could not open that log.
    """
    image = edit.image
    ranges = {feature.name: feature for feature in command.features}
    for name in image.features:
        if name not in ranges and name in edit.settings.supported_features:
            ranges[name] = FeatureRange(name=name, min_supported_version=0, max_supported_version=0)
    for name, supported in ranges.items():
        level = image.features.get(name, 0)
        if not supported.min_supported_version <= level <= supported.max_supported_version:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"Unable to register because broker {command.broker_id} does not support finalized version {level} "
                f"of {name}. It wants a version between {supported.min_supported_version} and "
                f"{supported.max_supported_version}, inclusive.",
            )
