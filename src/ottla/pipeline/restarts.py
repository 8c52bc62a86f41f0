"""Decides whether and when a stage that failed is started again."""

from typing import NamedTuple

_PAUSES_S = (1, 2, 5, 10, 30, 60)
# What a run with --once gives a stage: a scheduler starts the run again.
_RESTARTS_ONCE = 4


class RestartPolicy(NamedTuple):
    """How often a stage is restarted without a finished batch in between; None means without limit.

    A temporary error passes by itself, as when a broker is down. Another may be fixed by a person, or stay.
    """

    after_temporary_errors: int | None
    after_other_errors: int | None


ONCE = RestartPolicy(after_temporary_errors=_RESTARTS_ONCE, after_other_errors=0)


def policy_of(restarts_max: int) -> RestartPolicy:
    """Of a run without end. A negative `restarts_max` means without limit."""
    return RestartPolicy(None, None if restarts_max < 0 else restarts_max)


class Restart(NamedTuple):
    """`text` is a sentence for the user."""

    pause_s: int
    text: str


class Restarts:
    """The restarts of one stage since its last finished batch."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._temporary = 0
        self._others = 0

    def next(self, *, is_temporary: bool, is_permanent: bool = False) -> Restart | None:
        """The restart after an error; None if the stage is given up, as after every permanent error."""
        if is_permanent:
            return None
        if is_temporary:
            self._temporary += 1
            count, limit = self._temporary, self._policy.after_temporary_errors
        else:
            self._others += 1
            count, limit = self._others, self._policy.after_other_errors
        if limit is not None and count > limit:
            return None
        pause_s = _PAUSES_S[min(self._temporary + self._others, len(_PAUSES_S)) - 1]
        of_limit = "" if is_temporary or limit is None else f" ({count} of {limit})"
        return Restart(pause_s, f"Next attempt in {pause_s} s{of_limit}.")

    def reset(self) -> None:
        self._temporary = self._others = 0
