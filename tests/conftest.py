"""Hypothesis profiles, skips for packages that are not installed, and the order of the test files."""

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.examples import HYPOTHESIS_DEFAULT, scaled
from tests.extras import reason_to_skip

# A failing example prints the blob that reproduces it (`@reproduce_failure`), in either profile. In CI the examples
# are the same in every run. On a busy machine an example takes as long as it takes: there is no deadline.
settings.register_profile("default", max_examples=scaled(HYPOTHESIS_DEFAULT), deadline=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves files with slow tests to the front: if one started last, the other cores would have nothing to do."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skips a module that imports a package which only `make test` installs."""
    report = yield
    call: pytest.CallInfo[object] | None = getattr(report, "call", None)
    reason = reason_to_skip(call.excinfo.value) if call is not None and call.excinfo is not None else None
    if reason is not None:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {reason}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skips a test that imports such a package while it runs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (reason := reason_to_skip(error)) is not None:
            pytest.skip(reason)
        raise
