"""Checks of configs that clients want to set in the metadata (AlterConfigs, CreateTopics)."""

from collections.abc import Collection, Mapping

from ottla.core.controller.image import ConfigResource
from ottla.model.config import (
    BrokerConfig,
    ResourceType,
    unsupported_change_error,
    validate,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)
from ottla.model.errors import ErrorCode, KafkaError


def validate_configs(
    broker_config: BrokerConfig,
    resource: ConfigResource,
    configs: Mapping[str, str],
    altered: Collection[str],
) -> str | None:
    """The first error in `configs` of `resource`, of which a request sets those in `altered`; None if there is none.

    Raises KafkaError INVALID_CONFIG if they need a function that this release does not have.
    """
    error = _find_error(broker_config, resource, configs, altered)
    if error is None and (reason := unsupported_change_error(resource.type, configs, altered)) is not None:
        raise KafkaError(ErrorCode.invalid_config, reason)
    return error


def _find_error(
    broker_config: BrokerConfig,
    resource: ConfigResource,
    configs: Mapping[str, str],
    altered: Collection[str],
) -> str | None:
    match resource.type:
        case ResourceType.TOPIC:
            return validate_topic_configs(configs, broker_config)
        case ResourceType.GROUP:
            return validate_group_configs(configs, broker_config)
        case ResourceType.BROKER:
            return validate_broker_configs(
                configs, broker_config, per_broker=resource.name != "", altered=altered
            )
    errors = (validate(resource.type, name, value) for name, value in configs.items())
    return next((error for error in errors if error is not None), None)
