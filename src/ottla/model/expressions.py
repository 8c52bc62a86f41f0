"""Regular expressions that come from clients: RE2's, as in Kafka, which match in time linear in the text, whatever a
client thinks up (docs/decisions/0005-match-subscriptions-with-re2.md).
"""

from functools import lru_cache
from typing import Any

from ottla.model.errors import ErrorCode, KafkaError

_KEPT_MAX = 1024


def compiled(expression: str, what: str) -> Any:
    """Raises INVALID_REGULAR_EXPRESSION; `what` begins the sentence that says so."""
    # Few brokers meet an expression, and the library takes its time to load.
    import re2

    try:
        return _compiled(expression)
    except re2.error as error:
        (reason,) = error.args
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"{what} `{expression}` is not a valid regular expression: "
            f"{reason.decode(errors='replace') if isinstance(reason, bytes) else reason}. "
            "The syntax is that of RE2.",
        ) from None


@lru_cache(_KEPT_MAX)
def _compiled(expression: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(expression, options=options)
