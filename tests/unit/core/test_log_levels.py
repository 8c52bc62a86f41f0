"""KIP-412: which changes of log levels are accepted."""

import pytest

from ottla.core.controller.commands import ConfigChange, ConfigOp
from ottla.core.log_levels import LEVELS, decide_log_levels, level_name
from ottla.model.errors import ErrorCode, KafkaError

KNOWN = ("root", "ottla.network")


def test_levels_are_set_and_removed() -> None:
    changes = [
        ConfigChange("root", ConfigOp.SET, "WARN"),
        ConfigChange("ottla.network", ConfigOp.DELETE, None),
    ]
    assert decide_log_levels(KNOWN, changes) == {"root": 30, "ottla.network": 0}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("ottla.network", ConfigOp.SET, "LOUD"), ErrorCode.invalid_config, "Valid log levels are TRACE"),
        (("ottla.network", ConfigOp.SET, None), ErrorCode.invalid_config, "Valid log levels are TRACE"),
        (("ottla.network", ConfigOp.SET, "debug"), ErrorCode.invalid_config, "Valid log levels are TRACE"),
        (("kafka.server", ConfigOp.SET, "INFO"), ErrorCode.invalid_config, "kafka.server does not exist"),
        (("kafka.server", ConfigOp.DELETE, None), ErrorCode.invalid_config, "kafka.server does not exist"),
        (("root", ConfigOp.DELETE, None), ErrorCode.invalid_request, "Removing the log level of the root"),
        (("root", ConfigOp.APPEND, "INFO"), ErrorCode.invalid_request, "APPEND is not allowed"),
        (("root", 9, "INFO"), ErrorCode.invalid_request, r"unknown \(9\) is not allowed"),
    ],
)
def test_other_changes_are_rejected(
    change: tuple[str, int, str | None], code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as raised:
        decide_log_levels(
            KNOWN,
            [ConfigChange("ottla.network", ConfigOp.SET, "INFO"), ConfigChange(*change)][
                change[0] == "ottla.network" :
            ],
        )
    assert raised.value.code is code


def test_a_logger_that_is_named_twice_is_rejected() -> None:
    with pytest.raises(KafkaError, match="duplicate"):
        decide_log_levels(KNOWN, [ConfigChange("root", ConfigOp.SET, "INFO")] * 2)


def test_levels_have_log4js_names() -> None:
    assert [level_name(level) for level in LEVELS.values()] == list(LEVELS)
    assert (level_name(0), level_name(25), level_name(99)) == ("TRACE", "WARN", "FATAL")
