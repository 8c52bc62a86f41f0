"""Refuses requests that would cordon a directory which the broker does not have (KIP-1066).

Only the broker itself knows its log.dirs. Any other node refuses an entry that `cordoned.log.dirs` does not have yet,
as Kafka's controllers do: there, entries can only be removed. The active controller leaves this check out for a request
that a broker forwards, because that broker has made it.
"""

from collections.abc import Iterable
from typing import Any

from ottla.broker.config_requests import resource_of
from ottla.broker.connection import ClientConnection
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import ApiError, ConfigChange, ConfigOp
from ottla.core.controller.image import ConfigResource
from ottla.model.config import ResourceType
from ottla.model.config.cordoned import CORDONED_LOG_DIRS, cordoned_paths
from ottla.model.errors import ErrorCode

_NOT_WITH_REFUSED = ApiError(ErrorCode.invalid_request, "Another resource of the request was refused.")


def refused_cordons(
    services: NodeServices,
    changes: Iterable[tuple[ConfigResource, Iterable[ConfigChange]]],
    connection: ClientConnection | None = None,
) -> dict[ConfigResource, ApiError]:
    """The resources of a request whose `cordoned.log.dirs` cannot have the new value.

    `connection` is that of the client, or of the broker that has forwarded its request.
    """
    errors: dict[ConfigResource, ApiError] = {}
    is_checked = connection is not None and connection.forwards_requests
    for resource, altered in changes:
        if resource.type != ResourceType.BROKER:
            continue
        for change in altered:
            if change.name != CORDONED_LOG_DIRS or change.op not in (ConfigOp.SET, ConfigOp.APPEND):
                continue
            if _is_this_broker(services, resource):
                error = _own_error(services, change)
            else:
                error = None if is_checked else _error_of_another(services, resource, change)
            if error is not None:
                errors[resource] = error
    return errors


def refuse(
    requested: Iterable[Any], errors: dict[ConfigResource, ApiError]
) -> list[tuple[ConfigResource, ApiError]]:
    """The results for a request with some `errors`: nothing of it takes effect."""
    resources = [resource_of(resource) for resource in requested]
    return [(resource, errors.get(resource, _NOT_WITH_REFUSED)) for resource in resources]


def _is_this_broker(services: NodeServices, resource: ConfigResource) -> bool:
    config = services.config
    return resource.name == str(config.node_id) and "broker" in config.get_list("process.roles")


def _own_error(services: NodeServices, change: ConfigChange) -> ApiError | None:
    config = services.config
    before = config.get_list(CORDONED_LOG_DIRS) if change.op == ConfigOp.APPEND else ()
    try:
        cordoned_paths([*before, *_entries(change.value)], config.log_dirs)
    except ValueError as error:
        return ApiError(ErrorCode.invalid_request, str(error))
    return None


def _error_of_another(
    services: NodeServices, resource: ConfigResource, change: ConfigChange
) -> ApiError | None:
    before = _entries(services.metadata.image.configs.get(resource, {}).get(CORDONED_LOG_DIRS))
    added = [entry for entry in _entries(change.value) if entry not in before]
    if not added or not resource.name:  # the controller refuses one for all brokers
        return None
    return ApiError(
        ErrorCode.invalid_config,
        f"{CORDONED_LOG_DIRS}: only broker {resource.name} knows whether {added[0]} is one of its log.dirs, and other "
        f"nodes only remove entries. Send the request to broker {resource.name}",
    )


def _entries(value: str | None) -> list[str]:
    return [part.strip() for part in (value or "").split(",") if part.strip()]
