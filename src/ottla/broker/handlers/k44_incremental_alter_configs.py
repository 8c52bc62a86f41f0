"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339): sets, deletes, appends to and subtracts from single configs.

Configs are metadata, which the active controller changes. Log levels belong to the node that the client asks (KIP-412).
Only that node knows its log.dirs, so it refuses a cordoned.log.dirs with other directories (KIP-1066).
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from ottla.broker.config_requests import slices_of, submit_slices
from ottla.broker.dispatch import RequestContext
from ottla.broker.loggers import alter_loggers
from ottla.broker.long_requests import is_long
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import ApiError, ConfigChange, ConfigOp, IncrementalAlterConfigs
from ottla.core.controller.image import ConfigResource
from ottla.model.config import ResourceType
from ottla.model.config.cordoned import CORDONED_LOG_DIRS, cordoned_paths
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import decode_request

_NOT_WITH_LOGGERS = ApiError(
    ErrorCode.invalid_request,
    "The request also names a logger, which this broker alters itself. Send two requests.",
)
_NOT_WITH_REFUSED = ApiError(ErrorCode.invalid_request, "Another resource of the request was refused.")


def is_for_this_node(services: NodeServices, version: int, body: memoryview) -> bool:
    """Whether the request names a logger, or directories that are refused: then it is not forwarded."""
    _, request = decode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, body)
    return any(
        resource.resource_type == ResourceType.BROKER_LOGGER
        or _cordoned_error(services, resource) is not None
        for resource in request.resources
    )


async def handle(
    services: NodeServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    refused = [_cordoned_error(services, resource) or _NOT_WITH_REFUSED for resource in request.resources]
    if any(error is not _NOT_WITH_REFUSED for error in refused):
        names = [ConfigResource(r.resource_type, r.resource_name) for r in request.resources]
        return _response(list(zip(names, refused, strict=True)))
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
        rest = _response(
            [(ConfigResource(r.resource_type, r.resource_name), _NOT_WITH_LOGGERS) for r in others]
        )
    return replace(rest, responses=rest.responses + altered.responses)


def _cordoned_error(services: NodeServices, resource: AlterConfigsResource) -> ApiError | None:
    """Why cordoned.log.dirs of this broker cannot have the new value."""
    config = services.config
    if resource.resource_type != ResourceType.BROKER or resource.resource_name != str(config.node_id):
        return None
    for change in resource.configs:
        if change.name == CORDONED_LOG_DIRS and change.config_operation in (ConfigOp.SET, ConfigOp.APPEND):
            before = config.get_list(CORDONED_LOG_DIRS) if change.config_operation == ConfigOp.APPEND else ()
            added = [part.strip() for part in (change.value or "").split(",") if part.strip()]
            try:
                cordoned_paths([*before, *added], config.log_dirs)
            except ValueError as error:
                return ApiError(ErrorCode.invalid_request, str(error))
    return None


def _alter_logger(
    services: NodeServices, resource: AlterConfigsResource, validate_only: bool
) -> tuple[ConfigResource, ApiError]:
    changes = [ConfigChange(c.name, c.config_operation, c.value) for c in resource.configs]
    name = resource.resource_name
    error = alter_loggers(services.config.node_id, name, changes, validate_only=validate_only)
    return ConfigResource(resource.resource_type, name), error


async def _alter_metadata(
    services: NodeServices, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    in_thread = is_long(resource.configs for resource in request.resources)

    def resources() -> list[Any]:
        return slices_of(
            (
                ConfigResource(resource.resource_type, resource.resource_name),
                tuple(
                    ConfigChange(config.name, config.config_operation, config.value)
                    for config in resource.configs
                ),
            )
            for resource in request.resources
        )

    slices = await services.message_thread.run(resources) if in_thread else resources()
    results = await submit_slices(
        services, slices, lambda part: IncrementalAlterConfigs(part, validate_only=request.validate_only)
    )
    return await services.message_thread.run(lambda: _response(results)) if in_thread else _response(results)


def _response(results: list[tuple[ConfigResource, ApiError]]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time=timedelta(),
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
            for resource, error in results
        ),
    )
