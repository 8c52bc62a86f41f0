"""Registers this broker with the controller."""

from collections.abc import Collection
from uuid import UUID

from ottla.broker.services import ControllerClient
from ottla.core.controller.commands import RegisterBroker, UnfenceBroker
from ottla.core.controller.settings import SUPPORTED_FEATURES
from ottla.model.config import BrokerConfig
from ottla.protocol.metadata_records.records import Endpoint, FeatureRange


async def register_broker(
    controller: ControllerClient, config: BrokerConfig, incarnation_id: UUID, directory_ids: Collection[UUID]
) -> int:
    """Registers and unfences the broker. Returns the broker epoch."""
    broker_epoch = await controller.submit(
        RegisterBroker(
            config.node_id,
            incarnation_id,
            _end_points(config),
            tuple(
                FeatureRange(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ),
            tuple(directory_ids),
            config.get_str("broker.rack") or None,
        )
    )
    await controller.submit(UnfenceBroker(config.node_id, broker_epoch))
    return broker_epoch


def _end_points(config: BrokerConfig) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(name=e.name, host=e.host or "localhost", port=e.port, security_protocol=0)
        for e in config.advertised_listeners or config.broker_listeners
    )
