"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339): sets, deletes, appends to and subtracts from single configs.

Configs are metadata, which the active controller changes. Log levels belong to the node that the client asks (KIP-412).
Only a broker knows its log.dirs. It refuses a cordoned.log.dirs with other directories, and other nodes refuse to add
any (KIP-1066).
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from ottla.broker.config_requests import alter_configs, resource_of, results_of
from ottla.broker.cordon_requests import refuse, refused_cordons
from ottla.broker.dispatch import RequestContext
from ottla.broker.loggers import alter_loggers
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import ApiError, ConfigChange, IncrementalAlterConfigs
from ottla.core.controller.image import ConfigResource
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import decode_request

_NOT_WITH_LOGGERS = ApiError(
    ErrorCode.invalid_request,
    "The request also names a logger, which this broker alters itself. Send two requests.",
)


def is_for_this_node(services: NodeServices, version: int, body: memoryview) -> bool:
    """Whether the request names a logger, or directories that are refused: then it is not forwarded."""
    _, request = decode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, body)
    if any(resource.resource_type == ResourceType.BROKER_LOGGER for resource in request.resources):
        return True
    return bool(refused_cordons(services, _broker_changes(request)))


async def handle(
    services: NodeServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    if refused := refused_cordons(services, _broker_changes(request), context.connection):
        return _response(refuse(request.resources, refused))
    loggers = [r for r in request.resources if r.resource_type == ResourceType.BROKER_LOGGER]
    if not loggers:
        return await _alter_metadata(services, request)
    altered = _response([_alter_logger(services, resource, request.validate_only) for resource in loggers])
    others = tuple(r for r in request.resources if r.resource_type != ResourceType.BROKER_LOGGER)
    if not others:
        return altered
    if services.controller.is_local:
        rest = await _alter_metadata(services, replace(request, resources=others))
    else:
        rest = _response([(resource_of(resource), _NOT_WITH_LOGGERS) for resource in others])
    return replace(rest, responses=rest.responses + altered.responses)


def _broker_changes(
    request: IncrementalAlterConfigsRequest,
) -> Iterable[tuple[ConfigResource, tuple[ConfigChange, ...]]]:
    return (_changes(r) for r in request.resources if r.resource_type == ResourceType.BROKER)


def _changes(resource: AlterConfigsResource) -> tuple[ConfigResource, tuple[ConfigChange, ...]]:
    return resource_of(resource), tuple(
        ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs
    )


def _alter_logger(
    services: NodeServices, resource: AlterConfigsResource, validate_only: bool
) -> tuple[ConfigResource, ApiError]:
    named, changes = _changes(resource)
    return named, alter_loggers(services.config.node_id, named.name, changes, validate_only=validate_only)


async def _alter_metadata(
    services: NodeServices, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return await alter_configs(
        services,
        request.resources,
        _changes,
        lambda part: IncrementalAlterConfigs(part, validate_only=request.validate_only),
        _response,
    )


def _response(results: Iterable[tuple[ConfigResource, ApiError]]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time=timedelta(), responses=results_of(AlterConfigsResourceResponse, results)
    )
