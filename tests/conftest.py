"""Hypothesis profiles: new examples every time for a person, the same ones every time in CI."""

import os

from hypothesis import settings

# A failing example prints the blob that reproduces it (`@reproduce_failure`), in either profile.
settings.register_profile("default", print_blob=True)
settings.register_profile("ci", derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default"))
