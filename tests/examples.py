"""How many examples Hypothesis tries: all in `make test`, a part in `make check` (OTTLA_EXAMPLES_PERCENT)."""

import os
from typing import Any

from hypothesis import settings

PERCENT = int(os.environ.get("OTTLA_EXAMPLES_PERCENT", "100"))
EXAMPLES_MIN = 3
HYPOTHESIS_DEFAULT = 100


def examples(count: int = HYPOTHESIS_DEFAULT, **options: Any) -> settings:
    """The settings of a test that tries `count` examples in `make test`, and takes as long as it takes for each."""
    return settings(max_examples=scaled(count), deadline=None, **options)


def scaled(count: int) -> int:
    """The number of examples or seeds of this run for `count` in `make test`."""
    return count if PERCENT == 100 else max(min(count, EXAMPLES_MIN), count * PERCENT // 100)
