"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339): sets, deletes, appends to and subtracts from single configs."""

from datetime import timedelta

from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import ConfigChange, IncrementalAlterConfigs
from ottla.core.controller.image import ConfigResource


async def handle(
    services: NodeServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    command = IncrementalAlterConfigs(
        tuple(
            (
                ConfigResource(resource.resource_type, resource.resource_name),
                tuple(
                    ConfigChange(config.name, config.config_operation, config.value)
                    for config in resource.configs
                ),
            )
            for resource in request.resources
        ),
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(
        throttle_time=timedelta(),
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
            for resource, error in await services.controller.submit(command)
        ),
    )
