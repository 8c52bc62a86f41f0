"""DescribeConfigs, versions 1 to 4 (KIP-133). v3 types and documentation (KIP-569); v4 flexible."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.pending import Pending
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

if TYPE_CHECKING:
    from ottla.broker.node import Broker

Document = Callable[[int, str], str | None]


def lift(request: DescribeConfigsRequest, as_sent: object, version: int) -> DescribeConfigsRequest:
    # What is asked twice is answered once.
    return replace(request, resources=tuple(dict.fromkeys(request.resources)))


def handle(
    broker: "Broker", context: RequestContext, request: DescribeConfigsRequest
) -> Pending[DescribeConfigsResponse]:
    document = _documentation() if request.include_documentation else lambda resource_type, name: None
    return broker.turns.run(
        request.resources, lambda resource: _describe(broker, resource, request.include_synonyms, document)
    ).then(lambda results: DescribeConfigsResponse(throttle_time=timedelta(), results=tuple(results)))


def _documentation() -> Document:
    from ottla.model.config.documentation import documentation_of  # long texts, wanted by few requests

    return documentation_of


def _describe(
    broker: "Broker", resource: DescribeConfigsResource, with_synonyms: bool, document: Document
) -> DescribeConfigsResult:
    code, message = ErrorCode.none, None
    entries: list[ConfigEntry] = []
    try:
        entries = _entries(broker, resource)
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


def _entries(broker: "Broker", resource: DescribeConfigsResource) -> list[ConfigEntry]:
    resource_type, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys
    overrides = broker.image.config(resource_type, name)
    match resource_type:
        case ResourceType.TOPIC:
            if (problem := topic_name_error(name)) is not None:
                raise KafkaError(ErrorCode.invalid_topic_exception, problem)
            if name not in broker.image.topics:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
            return describe_topic_configs(overrides, broker.config, keys)
        case ResourceType.BROKER:
            if name == "":
                return describe_default_broker_configs(broker.config, keys)
            if name != str(broker.config.node_id):
                raise KafkaError(
                    ErrorCode.invalid_request,
                    f"Unexpected broker id, expected {broker.config.node_id} or empty string, but received {name}",
                )
            return describe_broker_configs(broker.config, keys)
        case ResourceType.CLIENT_METRICS:
            if name == "":
                raise KafkaError(
                    ErrorCode.invalid_request, "the name of a client metrics subscription must not be empty"
                )
            return describe_client_metrics_configs(overrides, keys)
        case ResourceType.GROUP:
            if name == "":
                raise KafkaError(ErrorCode.invalid_request, "the name of a group must not be empty")
            return describe_group_configs(overrides, broker.config, keys)
        case ResourceType.BROKER_LOGGER:
            if name != str(broker.config.node_id):
                raise KafkaError(
                    ErrorCode.invalid_request,
                    f"Unexpected broker id, expected {broker.config.node_id} but received {name!r}",
                )
            return []
    raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {resource_type}")
