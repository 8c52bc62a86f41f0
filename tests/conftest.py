"""Hypothesis profiles: new examples every time for a person, the same ones every time in CI. And the slow first."""

import os

import pytest
from hypothesis import settings

# A failing example prints the blob that reproduces it (`@reproduce_failure`), in either profile.
settings.register_profile("default", print_blob=True)
settings.register_profile("ci", derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests begin, in whatever order: one that begins last would leave the other core without work."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)
