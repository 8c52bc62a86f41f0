"""The values of cordoned.log.dirs (KIP-1066)."""

import pytest

from ottla.model.config import BrokerConfig, ConfigError
from ottla.model.config.cordoned import cordoned_paths, split_cordoned_paths

LOG_DIRS = ("/a", "/b/")


def test_a_star_stands_for_all_directories() -> None:
    assert cordoned_paths(("*",), LOG_DIRS) == {"/a", "/b"}
    assert cordoned_paths((), LOG_DIRS) == set()
    assert cordoned_paths(("/b", "/a/"), LOG_DIRS) == {"/a", "/b"}


def test_entries_that_are_not_in_log_dirs_do_not_hide_the_others() -> None:
    assert split_cordoned_paths(("/b", "/c", "/a/", "/d/"), LOG_DIRS) == (
        frozenset({"/a", "/b"}),
        ["/c", "/d"],
    )
    assert split_cordoned_paths(("/c", "*"), LOG_DIRS) == (frozenset({"/a", "/b"}), ["/c"])
    assert split_cordoned_paths(("/c",), LOG_DIRS) == (frozenset(), ["/c"])


@pytest.mark.parametrize(
    ("value", "reason"), [("/a,*", "must be the only entry"), ("/c", "/c is not one of log.dirs")]
)
def test_other_values_stop_a_broker_from_starting(value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig({"log.dirs": "/a,/b", "cordoned.log.dirs": value})
    BrokerConfig({"log.dirs": "/a,/b", "cordoned.log.dirs": "/a"})
