"""What the handlers of group requests share: who is asking, and the limits of what they are asked with."""

import uuid
from datetime import timedelta

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import BrokerServices
from ottla.core.controller.image import GROUP_VERSION
from ottla.core.groups.commands import Client

NO_THROTTLE = timedelta()
CONSUMER_PROTOCOL_LEVEL = 1  # of group.version
# A member id is kept in records as a string of at most 32,767 bytes; a client id may have as many, and we add to it.
MEMBER_ID_PREFIX_MAX = 4000
_MILLISECOND = timedelta(milliseconds=1)


def client_of(context: RequestContext) -> Client:
    host = context.connection.stream.peer.rpartition(":")[0]
    return Client(context.client_id, f"/{host.strip('[]')}")


def new_member_id(prefix: str, random: uuid.UUID) -> str:
    return f"{prefix[:MEMBER_ID_PREFIX_MAX]}-{random}"


def milliseconds(time: timedelta) -> int:
    return time // _MILLISECOND


def consumer_protocol_is_on(services: BrokerServices) -> bool:
    """KIP-848 needs the cluster's feature and this broker's consent."""
    return services.metadata.image.features.get(
        GROUP_VERSION, 0
    ) >= CONSUMER_PROTOCOL_LEVEL and "consumer" in services.config.get_list(
        "group.coordinator.rebalance.protocols"
    )
