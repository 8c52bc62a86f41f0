"""From a change to assigned partitions: the group's epoch, its target, each member's way there (KIP-848).

Whoever changes a group calls these three, in this order: `refresh_subscriptions`, `update_target`, `reconcile`. They do
not ask which protocol the member speaks.
"""

from ottla.core.groups.commands import TopicIdPartitions
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import ConsumerGroupMember, MemberState
from ottla.core.groups.consumer.reconciliation import Reconciliation
from ottla.core.groups.consumer.regex import RegexResolver
from ottla.core.groups.consumer.target_assignment import write_member_target, write_target
from ottla.core.groups.consumer.timers import (
    AssignmentDue,
    RevocationTimedOut,
    SessionExpired,
    assignment_key,
    revocation_key,
    session_key,
)
from ottla.core.groups.consumer.topic_hash import TopicHashes
from ottla.core.groups.group import GroupDecision
from ottla.core.groups.state import GroupsState
from ottla.protocol.group_records.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
)

# Where topics come and go all the time, expressions are matched against them this often at most.
REGEX_REFRESH_MIN_INTERVAL_MS = 10_000

# The interval of a member that waits for partitions or for a new target. The Java client and librdkafka follow the
# interval of each response. librdkafka also takes it as the timeout of the next heartbeat and closes the connection if
# that passes, so it must not be shorter than a slow round trip.
WAITING_HEARTBEAT_INTERVAL_MS = 1000


class Rebalancing:
    def __init__(self, state: GroupsState) -> None:
        self._state = state
        self._regexes = RegexResolver()
        self._hashes = TopicHashes()

    # -- 1. the group's epoch

    def is_stale(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether the topics of the group may be others than its epoch was made for."""
        return group.topics_version != self._state.topics.version or (
            bool(group.subscriptions.by_regex) and self._regexes_are_due(group, now_ms)
        )

    def _regexes_are_due(self, group: ConsumerGroup, now_ms: int) -> bool:
        age_ms = now_ms - group.regexes_timestamp_ms
        if age_ms >= self._state.settings.consumer_regex_refresh_interval_ms:
            return True
        return age_ms >= REGEX_REFRESH_MIN_INTERVAL_MS and self.has_old_regexes(group)

    def has_old_regexes(self, group: ConsumerGroup) -> bool:
        """Whether its expressions were matched before topics last came or went."""
        return bool(group.subscriptions.by_regex) and group.regexes_version < self._regexes.names_version(
            self._state.topics
        )

    def refresh_subscriptions(
        self, group: ConsumerGroup, decision: GroupDecision, now_ms: int, *, changed: bool = False
    ) -> None:
        """Resolves expressions and compares topics; the group's epoch grows where they, or a member, have changed."""
        subscriptions = group.subscriptions
        if subscriptions.by_regex and (
            subscriptions.resolved.keys() != subscriptions.by_regex.keys()
            or self._regexes_are_due(group, now_ms)
        ):
            changed |= self._resolve_regexes(group, decision, now_ms)
        group.topics_version = self._state.topics.version
        metadata_hash = self._hashes.of_group(subscriptions.names(), self._state.topics)
        if changed or metadata_hash != group.metadata_hash:
            self.write_epoch(group, decision, group.group_epoch + 1, metadata_hash)

    def write_epoch(
        self, group: ConsumerGroup, decision: GroupDecision, epoch: int, metadata_hash: int
    ) -> None:
        decision.write(
            ConsumerGroupMetadataKey(group_id=group.group_id),
            ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
        )

    def _resolve_regexes(self, group: ConsumerGroup, decision: GroupDecision, now_ms: int) -> bool:
        """All at once, so that new topics make one rebalance and not one for each expression."""
        version = self._state.topics.version
        changed = False
        for regex in tuple(group.subscriptions.by_regex):
            topics = self._regexes.resolve(regex, self._state.topics)
            known = group.subscriptions.resolved.get(regex)
            if known is not None and known.topics == topics:
                continue
            changed = True
            decision.write(
                ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex),
                ConsumerGroupRegularExpressionValue(
                    topics=tuple(sorted(topics)), version=version, timestamp=now_ms
                ),
            )
        group.regexes_version = version
        group.regexes_timestamp_ms = now_ms
        return changed

    # -- 2. the target

    def update_target(
        self, group: ConsumerGroup, decision: GroupDecision, now_ms: int, *, is_due: bool = False
    ) -> None:
        """A new target for a new epoch, now or when the interval is over (KIP-1263).

        Kafka then waits for the first heartbeat after it. Here a timer sees to it, so that the new target is there when
        members ask. A group of one never waits: there is nobody whose coming or going could be collected.
        """
        if group.assignment_epoch >= group.group_epoch or not group.members:
            return
        interval_ms = self._assignment_interval_ms(group.group_id)
        waits = group.assignment_timestamp_ms > 0 and len(group.members) > 1 and not is_due
        wait_ms = group.assignment_timestamp_ms + interval_ms - now_ms if waits else 0
        if wait_ms > 0:
            self.time_assignment(group, decision, wait_ms)
            return
        if group.assignment_is_timed:
            decision.cancel_timer(assignment_key(group.group_id))
            group.assignment_is_timed = False
        write_target(group, self._state, decision, now_ms)

    def time_assignment(
        self, group: ConsumerGroup, decision: GroupDecision, wait_ms: int | None = None
    ) -> None:
        """Never longer than the interval, also where the clock was set back."""
        if not group.assignment_is_timed:
            group.assignment_is_timed = True
            interval_ms = self._assignment_interval_ms(group.group_id)
            wait_ms = interval_ms if wait_ms is None else min(wait_ms, interval_ms)
            decision.start_timer(assignment_key(group.group_id), wait_ms, AssignmentDue(group.group_id))

    # -- 3. the member

    def reconcile(
        self,
        group: ConsumerGroup,
        member_id: str,
        owned: tuple[TopicIdPartitions, ...] | None,
        decision: GroupDecision,
        *,
        subscription_changed: bool,
    ) -> ConsumerGroupMember:
        """One step of the member towards its target; returns the member as it is then."""
        member = group.members[member_id]
        if not subscription_changed and member.is_reconciled_to(group.assignment_epoch):
            return member
        names = group.subscriptions.names_of(member)
        found = [self._state.topics.find(name) for name in names]
        reconciled = Reconciliation(
            assignment_epoch=group.assignment_epoch,
            target=group.target(member_id),
            subscribed={topic.topic_id for topic in found if topic is not None},
            subscription_changed=subscription_changed,
            is_owned=group.is_owned,
            owned=owned,
        ).step(member)
        if reconciled == member:
            return member
        self.write_current(group.group_id, reconciled, decision)
        if not reconciled.uses_classic_protocol:
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                self.time_revocation(group.group_id, reconciled, decision)
            elif member.state is MemberState.UNREVOKED_PARTITIONS:
                decision.cancel_timer(revocation_key(group.group_id, member_id))
        return group.members[member_id]

    # -- members come and go

    def write_metadata(self, group_id: str, member: ConsumerGroupMember, decision: GroupDecision) -> None:
        decision.write(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member.metadata
        )

    def write_current(self, group_id: str, member: ConsumerGroupMember, decision: GroupDecision) -> None:
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
        decision.write(key, member.current_value())

    def replace_member(
        self, group: ConsumerGroup, old: ConsumerGroupMember, member_id: str, decision: GroupDecision
    ) -> ConsumerGroupMember:
        """A static member has come back under another id: it takes over everything."""
        target = group.target(old.member_id)
        self._write_away(group, old.member_id, decision)
        new = old.replaced_by(member_id)
        self.write_metadata(group.group_id, new, decision)
        write_member_target(decision, group.group_id, member_id, target)
        self.write_current(group.group_id, new, decision)
        return group.members[member_id]

    def remove_members(
        self, group: ConsumerGroup, member_ids: tuple[str, ...], decision: GroupDecision, now_ms: int
    ) -> None:
        """Their partitions are free at once, and those who are left get another target."""
        for member_id in member_ids:
            self._write_away(group, member_id, decision)
        self.forget_unused_regexes(group, decision)
        self.refresh_subscriptions(group, decision, now_ms, changed=True)
        self.update_target(group, decision, now_ms)

    def forget_unused_regexes(self, group: ConsumerGroup, decision: GroupDecision) -> None:
        subscriptions = group.subscriptions
        for regex in [regex for regex in subscriptions.resolved if regex not in subscriptions.by_regex]:
            key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
            decision.write(key, None)

    def _write_away(self, group: ConsumerGroup, member_id: str, decision: GroupDecision) -> None:
        """In this order: what a member has goes before the member."""
        group_id = group.group_id
        decision.write(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        decision.write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        decision.write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
        decision.cancel_timer(session_key(group_id, member_id))
        decision.cancel_timer(revocation_key(group_id, member_id))

    # -- time

    def restart_session(self, group_id: str, member: ConsumerGroupMember, decision: GroupDecision) -> None:
        """A classic member has a timeout of its own; the others have the group's."""
        if member.classic_member_metadata is not None:
            timeout_ms = member.classic_member_metadata.session_timeout_ms
        else:
            overridden = self._state.settings.overrides(group_id).consumer_session_timeout_ms
            timeout_ms = overridden or self._state.settings.consumer_session_timeout_ms
        expired = SessionExpired(group_id, member.member_id)
        decision.start_timer(session_key(group_id, member.member_id), timeout_ms, expired)

    def time_revocation(self, group_id: str, member: ConsumerGroupMember, decision: GroupDecision) -> None:
        decision.start_timer(
            revocation_key(group_id, member.member_id),
            member.metadata.rebalance_timeout_ms,
            RevocationTimedOut(group_id, member.member_id, member.member_epoch),
        )

    def heartbeat_interval_ms(self, group: ConsumerGroup, member: ConsumerGroupMember) -> int:
        """The configured interval, or a shorter one while the member waits for partitions or for a new target."""
        overridden = self._state.settings.overrides(group.group_id).consumer_heartbeat_interval_ms
        interval_ms = overridden or self._state.settings.consumer_heartbeat_interval_ms
        if member.state is MemberState.UNRELEASED_PARTITIONS or group.assignment_epoch < group.group_epoch:
            return min(interval_ms, WAITING_HEARTBEAT_INTERVAL_MS)
        return interval_ms

    def _assignment_interval_ms(self, group_id: str) -> int:
        overridden = self._state.settings.overrides(group_id).consumer_assignment_interval_ms
        return self._state.settings.consumer_assignment_interval_ms if overridden is None else overridden
