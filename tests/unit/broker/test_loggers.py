"""Log levels over the wire, as kafka-configs --entity-type broker-loggers changes them (KIP-412)."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.unit.broker.broker_bench import Bench, on_broker

from ottla.broker.loggers import LOGGERS
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode

SOURCE = Path(__file__).parents[3] / "src" / "ottla"
SET, DELETE = 0, 1


@pytest.fixture(autouse=True)
def levels_are_restored() -> Iterator[None]:
    loggers = [logging.getLogger("ottla" if name == "root" else name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


async def levels_of(bench: Bench, *names: str) -> dict[str, str]:
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name="1", configuration_keys=names or None
    )
    (result,) = (await bench.ask(DescribeConfigsRequest(resources=(resource,)))).results
    assert result.error_code is ErrorCode.none
    assert {config.config_source for config in result.configs} == {6}
    return {config.name: config.value for config in result.configs}


async def alter(bench: Bench, *changes: tuple[str, int, str | None], **options: Any) -> list[ErrorCode]:
    logger = AlterConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER,
        resource_name=options.pop("node", "1"),
        configs=tuple(AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in changes),
    )
    others = options.pop("others", ())
    request = IncrementalAlterConfigsRequest(
        resources=(logger, *others), validate_only=options.get("validate_only", False)
    )
    return [response.error_code for response in (await bench.ask(request)).responses]


@on_broker()
async def test_a_level_is_set_shown_and_removed(bench: Bench) -> None:
    assert tuple(await levels_of(bench)) == LOGGERS
    assert await alter(bench, ("root", SET, "WARN"), ("ottla.network", SET, "DEBUG")) == [ErrorCode.none]
    assert await levels_of(bench, "ottla.network", "ottla.quorum") == {
        "ottla.network": "DEBUG",
        "ottla.quorum": "WARN",
    }
    assert logging.getLogger("ottla.network").isEnabledFor(logging.DEBUG)
    assert await alter(bench, ("ottla.network", DELETE, None)) == [ErrorCode.none]
    assert await levels_of(bench, "ottla.network") == {"ottla.network": "WARN"}


@on_broker()
async def test_an_invalid_change_and_a_check_change_nothing(bench: Bench) -> None:
    before = await levels_of(bench)
    wrong = ("ottla.network", SET, "LOUD")
    assert await alter(bench, ("ottla.quorum", SET, "ERROR"), wrong) == [ErrorCode.invalid_config]
    assert await alter(bench, ("root", SET, "ERROR"), node="2") == [ErrorCode.invalid_request]
    assert await alter(bench, ("root", SET, "ERROR"), validate_only=True) == [ErrorCode.none]
    assert await levels_of(bench) == before


@on_broker()
async def test_loggers_and_configs_in_one_request(bench: Bench) -> None:
    broker = AlterConfigsResource(
        resource_type=ResourceType.BROKER,
        resource_name="1",
        configs=(AlterableConfig(name="log.retention.ms", config_operation=SET, value="7000"),),
    )
    codes = await alter(bench, ("root", SET, "ERROR"), others=(broker,))
    assert codes == [ErrorCode.none, ErrorCode.none]
    assert bench.services.metadata.image.config(ResourceType.BROKER, "1") == {"log.retention.ms": "7000"}
    assert (await levels_of(bench, "root")) == {"root": "ERROR"}


def test_every_logger_of_a_broker_can_be_changed() -> None:
    packages = ("broker", "core", "env", "protocol", "records", "rpc", "storage")
    sources = [path.read_text() for package in packages for path in (SOURCE / package).rglob("*.py")]
    used = {name for text in sources for name in re.findall(r'getLogger\("(ottla\.\w+)"\)', text)}
    assert sorted(used) == list(LOGGERS[1:])
