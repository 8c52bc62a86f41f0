"""AlterConfigs, versions 0 to 2 (KIP-133): the configs of the request replace all configs of the resource.

Nodes refuse a cordoned.log.dirs as for IncrementalAlterConfigs (KIP-1066).
"""

from collections.abc import Iterable
from datetime import timedelta

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from ottla.broker.config_requests import alter_configs, resource_of, results_of
from ottla.broker.connection import ClientConnection
from ottla.broker.cordon_requests import refuse, refused_cordons
from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import AlterConfigs, ApiError, ConfigChange, ConfigOp
from ottla.core.controller.image import ConfigResource
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import decode_request


def is_for_this_node(services: NodeServices, version: int, body: memoryview) -> bool:
    """Whether the request names directories that are refused: then it is not forwarded."""
    _, request = decode_request(ApiKey.ALTER_CONFIGS, version, body)
    return bool(_refused(services, request))


async def handle(
    services: NodeServices, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    if refused := _refused(services, request, context.connection):
        return _response(refuse(request.resources, refused))
    return await alter_configs(
        services,
        request.resources,
        _configs,
        lambda part: AlterConfigs(part, validate_only=request.validate_only),
        _response,
    )


def _refused(
    services: NodeServices, request: AlterConfigsRequest, connection: ClientConnection | None = None
) -> dict[ConfigResource, ApiError]:
    changes = (
        (
            resource_of(resource),
            (ConfigChange(config.name, ConfigOp.SET, config.value) for config in resource.configs),
        )
        for resource in request.resources
    )
    return refused_cordons(services, changes, connection)


def _configs(
    resource: AlterConfigsResource,
) -> tuple[ConfigResource, tuple[tuple[str, str | None], ...]]:
    return resource_of(resource), tuple((config.name, config.value) for config in resource.configs)


def _response(results: Iterable[tuple[ConfigResource, ApiError]]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        throttle_time=timedelta(), responses=results_of(AlterConfigsResourceResponse, results)
    )
