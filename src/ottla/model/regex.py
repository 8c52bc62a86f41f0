"""Compiles regular expressions of clients with RE2, as Kafka does: matching takes linear time for any expression
(docs/decisions/0005-re2-for-subscriptions.md).
"""

from functools import lru_cache
from typing import Any

from ottla.model.errors import ErrorCode, KafkaError

_CACHED_MAX = 1024


def compile_regex(expression: str, what: str) -> Any:
    """Raises INVALID_REGULAR_EXPRESSION with a message that begins with `what`."""
    # Imported here because it is slow to load, and few brokers need it.
    import re2

    try:
        return _compile(expression)
    except re2.error as error:
        (reason,) = error.args
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"{what} `{expression}` is not a valid regular expression: "
            f"{reason.decode(errors='replace') if isinstance(reason, bytes) else reason}. "
            "The syntax is that of RE2.",
        ) from None


@lru_cache(_CACHED_MAX)
def _compile(expression: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(expression, options=options)
