"""What the broker knows of a client that sends telemetry requests (KIP-714)."""

from uuid import UUID

from ottla.broker.dispatch import RequestContext
from ottla.core.client_telemetry import ClientLabels


def labels_of(context: RequestContext, instance_id: UUID | None) -> ClientLabels:
    host, _, port = context.connection.stream.peer.rpartition(":")
    name, version = context.connection.client_software
    return ClientLabels(str(instance_id), context.client_id, name, version, host, port)
