"""ListConfigResources, versions 0 and 1. v0 lists client-metrics subscriptions (KIP-714); v1 any type (KIP-1142)."""

from datetime import timedelta

from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode


def lift(request: ListConfigResourcesRequest, as_sent: object, version: int) -> ListConfigResourcesRequest:
    return (
        ListConfigResourcesRequest(resource_types=(ResourceType.CLIENT_METRICS,)) if version == 0 else request
    )


def handle(
    services: NodeServices, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    known = tuple(t for t in ResourceType if t is not ResourceType.UNKNOWN)
    wanted = request.resource_types or known
    if not set(wanted) <= set(known):
        return ListConfigResourcesResponse(
            throttle_time=timedelta(), error_code=ErrorCode.unsupported_version, config_resources=()
        )
    image = services.metadata.image
    names: dict[int, set[str]] = {
        ResourceType.TOPIC: set(image.topics),
        ResourceType.BROKER: {str(broker_id) for broker_id in image.brokers},
        ResourceType.BROKER_LOGGER: {str(broker_id) for broker_id in image.brokers},
        ResourceType.CLIENT_METRICS: set(),
        ResourceType.GROUP: set(),
    }
    for resource in image.configs:
        if resource.type in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
            names[resource.type].add(resource.name)
    return ListConfigResourcesResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in wanted
            for name in sorted(names[resource_type])
        ),
    )
