"""Names of APIs and errors are found however they are written; the error for others lists all."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.testing.names import find_api, find_error


@pytest.mark.parametrize("name", ["OffsetCommit", "OFFSET_COMMIT", "offset_commit", "offsetcommit", 8])
def test_an_api_has_many_spellings(name: str | int):
    assert find_api(name) is ApiKey.OFFSET_COMMIT


@pytest.mark.parametrize("name", ["NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollower", 6])
def test_an_error_has_many_spellings(name: str | int):
    assert find_error(name) is ErrorCode.not_leader_or_follower


def test_an_unknown_api_is_an_error_with_all_names():
    with pytest.raises(
        ValueError, match=r"no API 'Produze'\. Did you mean Produce\? The APIs: Produce, Fetch, "
    ):
        find_api("Produze")
    with pytest.raises(ValueError, match=r"no API with key 52\. The APIs: Produce, "):
        find_api(52)


def test_an_unknown_error_is_an_error_with_all_names():
    with pytest.raises(
        ValueError, match=r"no error 'NOT_LEADER'\. Did you mean \w+\? The errors: .*NOT_CONTROLLER"
    ):
        find_error("NOT_LEADER")
    with pytest.raises(ValueError, match=r"no error with code 9999\. The errors: "):
        find_error(9999)
