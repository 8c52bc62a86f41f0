"""The states of a classic group and their transitions."""

from enum import Enum


class ClassicGroupState(Enum):
    """The values are shown by ListGroups and DescribeGroups."""

    EMPTY = "Empty"  # no members, but maybe offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # waits for members to (re)join
    COMPLETING_REBALANCE = "CompletingRebalance"  # all have joined; waits for the leader's assignment
    STABLE = "Stable"  # members have their assignment
    DEAD = "Dead"  # deleted, or converted to a group of another type


_S = ClassicGroupState

VALID_PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}
