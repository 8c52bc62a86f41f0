"""The rebalance of a classic group: all members rejoin, then the next generation begins."""

from ottla.core.groups.classic.errors import rebalance_in_progress
from ottla.core.groups.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    ClassicGroup,
)
from ottla.core.groups.classic.member import NO_ASSIGNMENT
from ottla.core.groups.classic.timers import (
    InitialRebalanceDelayOver,
    RebalanceTimedOut,
    SyncTimedOut,
    join_key,
    sync_key,
)
from ottla.core.groups.group import GroupDecision

# A client may set a rebalance timeout of 0. Waiting for static members again and again must not become a busy loop.
_REJOIN_WAIT_AGAIN_MS_MIN = 100


class ClassicRebalancer:
    """`initial_delay_ms` is `group.initial.rebalance.delay.ms`."""

    def __init__(self, initial_delay_ms: int) -> None:
        self._initial_delay_ms = initial_delay_ms

    def begin_or_proceed(self, group: ClassicGroup, decision: GroupDecision, now_ms: int) -> None:
        """Members have changed: begins a rebalance, or continues the present one."""
        if group.state is PREPARING_REBALANCE:
            self.proceed(group, decision, now_ms)
        else:
            self.begin(group, decision, now_ms)

    def begin(self, group: ClassicGroup, decision: GroupDecision, now_ms: int) -> None:
        """Members that wait for an assignment learn it now, the others at their next heartbeat."""
        if group.state is COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = NO_ASSIGNMENT
                if member.awaiting_sync is not None:
                    group.respond_to_sync(member, rebalance_in_progress(group.group_id), decision)
                    member.restart_session(decision)
        group.pending_sync.clear()
        decision.cancel_timer(sync_key(group.group_id))
        is_initial = group.state is EMPTY
        group.transition_to(PREPARING_REBALANCE, now_ms)
        if is_initial:
            group.has_new_member = False
            remaining_ms = max(group.rebalance_timeout_ms - self._initial_delay_ms, 0)
            self._delay(group, self._initial_delay_ms, remaining_ms, decision)
        elif group.has_everyone_joined:
            self.complete_join(group, decision, now_ms)
        else:
            self._await_rejoin(group, group.rebalance_timeout_ms, decision)

    def proceed(self, group: ClassicGroup, decision: GroupDecision, now_ms: int) -> None:
        """Completes the join if all members have rejoined. A new group waits until its initial delay is over."""
        if group.is_rebalancing and not group.is_in_initial_rebalance and group.has_everyone_joined:
            self.complete_join(group, decision, now_ms)

    def end_initial_delay(
        self, group: ClassicGroup, timer: InitialRebalanceDelayOver, decision: GroupDecision, now_ms: int
    ) -> None:
        """KIP-134: extends the delay while new members join, up to the rebalance timeout."""
        if group.has_new_member and timer.remaining_ms > 0:
            group.has_new_member = False
            delay_ms = min(self._initial_delay_ms, timer.remaining_ms)
            self._delay(group, delay_ms, max(timer.remaining_ms - timer.delay_ms, 0), decision)
        else:
            self.complete_join(group, decision, now_ms)

    def complete_join(self, group: ClassicGroup, decision: GroupDecision, now_ms: int) -> None:
        """Begins the next generation with the members that have rejoined. Static members stay until their session
        ends.
        """
        decision.cancel_timer(join_key(group.group_id))
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                group.remove(member.member_id, decision)
        if not group.elect_joined_leader() and group.members:
            self._await_rejoin(group, max(group.rebalance_timeout_ms, _REJOIN_WAIT_AGAIN_MS_MIN), decision)
            return
        group.start_generation(now_ms)
        if group.is_empty:
            group.write(decision)
            return
        for member in group.members.values():
            is_leader = member.member_id == group.leader_id
            group.respond_to_join(
                member, group.join_response(member.member_id, with_members=is_leader), decision
            )
            member.restart_session(decision)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        timed_out = SyncTimedOut(group.group_id, group.generation_id)
        decision.start_timer(sync_key(group.group_id), group.rebalance_timeout_ms, timed_out)

    def _delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, decision: GroupDecision) -> None:
        over = InitialRebalanceDelayOver(group.group_id, delay_ms, remaining_ms)
        decision.start_timer(join_key(group.group_id), delay_ms, over)

    def _await_rejoin(self, group: ClassicGroup, delay_ms: int, decision: GroupDecision) -> None:
        timed_out = RebalanceTimedOut(group.group_id)
        decision.start_timer(join_key(group.group_id), delay_ms, timed_out)
