"""AlterConfigs, versions 0 to 2 (KIP-133): the configs of the request replace all configs of the resource."""

from datetime import timedelta

from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import AlterConfigs
from ottla.core.controller.image import ConfigResource


async def handle(
    services: NodeServices, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    command = AlterConfigs(
        tuple(
            (
                ConfigResource(resource.resource_type, resource.resource_name),
                tuple((config.name, config.value) for config in resource.configs),
            )
            for resource in request.resources
        ),
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(
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
