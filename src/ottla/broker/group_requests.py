"""What the handlers of group requests share: the client, member ids, and whether the consumer protocol is enabled."""

import uuid
from datetime import timedelta

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import GROUP_VERSION
from ottla.core.groups.commands import Client
from ottla.model.errors import ErrorCode, KafkaError

NO_THROTTLE = timedelta()
CONSUMER_PROTOCOL_LEVEL = 1  # of group.version
# Records hold a member id as a string of at most 32,767 bytes. It begins with the client id, which may be as long.
MEMBER_ID_PREFIX_MAX = 4000
_MILLISECOND = timedelta(milliseconds=1)


def client_of(context: RequestContext) -> Client:
    host = context.connection.stream.peer.rpartition(":")[0]
    return Client(context.client_id, f"/{host.strip('[]')}")


def new_member_id(prefix: str, random: uuid.UUID) -> str:
    return f"{prefix[:MEMBER_ID_PREFIX_MAX]}-{random}"


def milliseconds(duration: timedelta) -> int:
    return duration // _MILLISECOND


def consumer_protocol_is_enabled(services: BrokerServices) -> bool:
    """KIP-848 needs a level of the cluster's feature group.version, and a config of this broker."""
    level = services.metadata.image.features.get(GROUP_VERSION, 0)
    protocols = services.config.get_list("group.coordinator.rebalance.protocols")
    return level >= CONSUMER_PROTOCOL_LEVEL and "consumer" in protocols


def consumer_protocol_disabled() -> KafkaError:
    return KafkaError(
        ErrorCode.unsupported_version,
        "the consumer protocol is disabled: check group.version and group.coordinator.rebalance.protocols",
    )
