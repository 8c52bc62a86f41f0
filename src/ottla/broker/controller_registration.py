"""Registers this node's controller with the active one (KIP-919), so that others know its addresses and features."""

import asyncio
import logging

from ottla.broker.random_uuid import random_uuid
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import RegisterController
from ottla.core.controller.settings import supported_feature_ranges
from ottla.model.errors import KafkaError
from ottla.protocol.metadata_records.records import Endpoint

logger = logging.getLogger("ottla.controller")

_RETRY_S = 1.0
# Until the metadata is there, which is soon after the start. A quorum can be upgraded when all have registered.
_POLL_S = 0.05
# Only another process of this node can take the place of a registration, so it is checked rarely.
_CHECK_S = 10.0


async def keep_controller_registered(services: NodeServices, end_points: tuple[Endpoint, ...]) -> None:
    """Registers again if another process of this node has registered since."""
    node_id, incarnation_id = services.config.node_id, random_uuid(services.env)
    command = RegisterController(node_id, incarnation_id, end_points, supported_feature_ranges())
    while True:
        registered = services.metadata.image.controllers.get(node_id)
        is_registered = registered is not None and registered.incarnation_id == incarnation_id
        if not services.metadata.image.features:
            await asyncio.sleep(_POLL_S)
            continue
        if not is_registered:
            try:
                await services.controller.submit(command)
                logger.info("controller %d is registered", node_id)
            except KafkaError as error:
                logger.warning("controller %d could not register yet: %s", node_id, error.message)
        await asyncio.sleep(_CHECK_S if is_registered else _RETRY_S)
