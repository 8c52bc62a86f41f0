"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339): sets, deletes, appends to and subtracts from single configs."""

from datetime import timedelta
from typing import Any

from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from ottla.broker.config_requests import slices_of, submit_slices
from ottla.broker.dispatch import RequestContext
from ottla.broker.long_requests import is_long
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import ApiError, ConfigChange, IncrementalAlterConfigs
from ottla.core.controller.image import ConfigResource


async def handle(
    services: NodeServices, context: RequestContext, request: IncrementalAlterConfigsRequest
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
