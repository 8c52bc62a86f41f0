"""DescribeConfigs, versions 1 to 4 (KIP-133). v3 types and documentation (KIP-569); v4 flexible."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.loggers import check_node, describe_loggers
from ottla.broker.promise import Promise
from ottla.broker.services import NodeServices
from ottla.core.controller.topic_names import topic_name_error
from ottla.model.config import (
    ConfigEntry,
    ResourceType,
    describe_broker_configs,
    describe_client_metrics_configs,
    describe_default_broker_configs,
    describe_group_configs,
    describe_topic_configs,
)
from ottla.model.errors import ErrorCode, KafkaError

Document = Callable[[int, str], str | None]


def lift(request: DescribeConfigsRequest, as_sent: object, version: int) -> DescribeConfigsRequest:
    # A resource that is named twice has one entry in the response.
    return replace(request, resources=tuple(dict.fromkeys(request.resources)))


def handle(
    services: NodeServices, context: RequestContext, request: DescribeConfigsRequest
) -> Promise[DescribeConfigsResponse]:
    document = _documentation() if request.include_documentation else lambda resource_type, name: None
    return services.scheduler.run(
        request.resources, lambda resource: _describe(services, resource, request.include_synonyms, document)
    ).then(lambda results: DescribeConfigsResponse(throttle_time=timedelta(), results=tuple(results)))


def _documentation() -> Document:
    from ottla.model.config.documentation import documentation_of  # long texts that few requests need

    return documentation_of


def _describe(
    services: NodeServices, resource: DescribeConfigsResource, with_synonyms: bool, document: Document
) -> DescribeConfigsResult:
    code, message = ErrorCode.none, None
    entries: list[ConfigEntry] = []
    try:
        entries = _entries(services, resource)
    except KafkaError as error:
        code, message = error.code, error.message
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            DescribeConfigsResourceResult(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
                synonyms=tuple(
                    DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
                    for synonym in (entry.synonyms if with_synonyms else ())
                ),
                config_type=entry.type,
                documentation=document(resource.resource_type, entry.name),
            )
            for entry in entries
        ),
    )


def _entries(services: NodeServices, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    resource_type, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys
    overrides = services.metadata.image.config(resource_type, name)
    match resource_type:
        case ResourceType.TOPIC:
            if (problem := topic_name_error(name)) is not None:
                raise KafkaError(ErrorCode.invalid_topic_exception, problem)
            if name not in services.metadata.image.topics:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
            return describe_topic_configs(overrides, services.config, keys)
        case ResourceType.BROKER:
            if name == "":
                return describe_default_broker_configs(services.config, keys)
            if name != str(services.config.node_id):
                raise KafkaError(
                    ErrorCode.invalid_request,
                    f"Unexpected broker id, expected {services.config.node_id} or empty string, but received {name}",
                )
            return describe_broker_configs(services.config, keys)
        case ResourceType.CLIENT_METRICS:
            if name == "":
                raise KafkaError(
                    ErrorCode.invalid_request, "the name of a client metrics subscription must not be empty"
                )
            return describe_client_metrics_configs(overrides, keys)
        case ResourceType.GROUP:
            if name == "":
                raise KafkaError(ErrorCode.invalid_request, "the name of a group must not be empty")
            return describe_group_configs(overrides, services.config, keys)
        case ResourceType.BROKER_LOGGER:
            check_node(services.config.node_id, name)
            return describe_loggers(keys)
    raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {resource_type}")
