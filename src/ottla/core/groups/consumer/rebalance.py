"""The rebalance of a consumer group: its epoch, its target, and the reconciliation of its members (KIP-848).

After a change of a group, call `refresh_subscriptions`, `update_target` and `reconcile`, in this order. They serve
members of both protocols.
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

# How often regular expressions are matched at most, if topics are created and deleted all the time.
REGEX_REFRESH_MIN_INTERVAL_MS = 10_000

# The interval of a member that waits for partitions or for a new target. The Java client and librdkafka follow the
# interval of each response. librdkafka also takes it as the timeout of the next heartbeat and closes the connection if
# that passes, so it must not be shorter than a slow round trip.
_WAITING_HEARTBEAT_INTERVAL_MS = 1000


class ConsumerRebalancer:
    def __init__(self, state: GroupsState) -> None:
        self._state = state
        self._regexes = RegexResolver()
        self._hashes = TopicHashes()

    # -- 1. the group's epoch

    def is_stale(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether the topics of the group may have changed since its epoch was set."""
        return group.topics_version != self._state.topics.version or (
            bool(group.subscriptions.by_regex) and self._regexes_are_due(group, now_ms)
        )

    def _regexes_are_due(self, group: ConsumerGroup, now_ms: int) -> bool:
        age_ms = now_ms - group.regexes_timestamp_ms
        if age_ms >= self._state.settings.consumer_regex_refresh_interval_ms:
            return True
        return age_ms >= REGEX_REFRESH_MIN_INTERVAL_MS and self.has_outdated_regexes(group)

    def has_outdated_regexes(self, group: ConsumerGroup) -> bool:
        """Whether its regular expressions were resolved before the set of topics last changed."""
        return bool(group.subscriptions.by_regex) and group.regexes_version < self._regexes.names_version(
            self._state.topics
        )

    def refresh_subscriptions(
        self, group: ConsumerGroup, decision: GroupDecision, now_ms: int, *, changed: bool = False
    ) -> None:
        """Resolves regular expressions and compares the topics; raises the group's epoch if anything has changed."""
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
        """Resolves all together, so that new topics cause one rebalance and not one per expression."""
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
        """Computes a new target for a new epoch, now or when the assignment interval is over (KIP-1263).

        Kafka computes it at the first heartbeat after the interval. Here a timer does, so that the target is ready for
        that heartbeat. A group with one member never waits, because there are no changes of others to collect.
        """
        if group.assignment_epoch >= group.group_epoch or not group.members:
            return
        interval_ms = self._assignment_interval_ms(group.group_id)
        waits = group.assignment_timestamp_ms > 0 and len(group.members) > 1 and not is_due
        wait_ms = group.assignment_timestamp_ms + interval_ms - now_ms if waits else 0
        if wait_ms > 0:
            self.start_assignment_timer(group, decision, wait_ms)
            return
        if group.has_assignment_timer:
            decision.cancel_timer(assignment_key(group.group_id))
            group.has_assignment_timer = False
        write_target(group, self._state, decision, now_ms)

    def start_assignment_timer(
        self, group: ConsumerGroup, decision: GroupDecision, wait_ms: int | None = None
    ) -> None:
        """Never waits longer than the interval, even if the clock was set back."""
        if not group.has_assignment_timer:
            group.has_assignment_timer = True
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
        """Moves the member one step towards its target; returns the updated member."""
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
        self.write_current_assignment(group.group_id, reconciled, decision)
        if not reconciled.uses_classic_protocol:
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                self.start_revocation_timer(group.group_id, reconciled, decision)
            elif member.state is MemberState.UNREVOKED_PARTITIONS:
                decision.cancel_timer(revocation_key(group.group_id, member_id))
        return group.members[member_id]

    # -- records of members

    def write_metadata(self, group_id: str, member: ConsumerGroupMember, decision: GroupDecision) -> None:
        decision.write(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member.metadata
        )

    def write_current_assignment(
        self, group_id: str, member: ConsumerGroupMember, decision: GroupDecision
    ) -> None:
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
        decision.write(key, member.current_assignment_value())

    def replace_member(
        self, group: ConsumerGroup, old: ConsumerGroupMember, member_id: str, decision: GroupDecision
    ) -> ConsumerGroupMember:
        """A static member has come back with a new id and takes over everything of its previous incarnation."""
        target = group.target(old.member_id)
        self._write_member_tombstones(group, old.member_id, decision)
        new = old.replaced_by(member_id)
        self.write_metadata(group.group_id, new, decision)
        write_member_target(decision, group.group_id, member_id, target)
        self.write_current_assignment(group.group_id, new, decision)
        return group.members[member_id]

    def remove_members(
        self, group: ConsumerGroup, member_ids: tuple[str, ...], decision: GroupDecision, now_ms: int
    ) -> None:
        """Their partitions are free at once, and the remaining members get a new target."""
        for member_id in member_ids:
            self._write_member_tombstones(group, member_id, decision)
        self.delete_unused_regexes(group, decision)
        self.refresh_subscriptions(group, decision, now_ms, changed=True)
        self.update_target(group, decision, now_ms)

    def delete_unused_regexes(self, group: ConsumerGroup, decision: GroupDecision) -> None:
        subscriptions = group.subscriptions
        for regex in [regex for regex in subscriptions.resolved if regex not in subscriptions.by_regex]:
            key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
            decision.write(key, None)

    def _write_member_tombstones(self, group: ConsumerGroup, member_id: str, decision: GroupDecision) -> None:
        """The member's own record comes last."""
        group_id = group.group_id
        decision.write(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        decision.write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        decision.write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
        decision.cancel_timer(session_key(group_id, member_id))
        decision.cancel_timer(revocation_key(group_id, member_id))

    # -- timers and intervals

    def restart_session(self, group_id: str, member: ConsumerGroupMember, decision: GroupDecision) -> None:
        """A classic member has its own timeout; the others have the group's."""
        if member.classic_member_metadata is not None:
            timeout_ms = member.classic_member_metadata.session_timeout_ms
        else:
            overridden = self._state.settings.overrides(group_id).consumer_session_timeout_ms
            timeout_ms = overridden or self._state.settings.consumer_session_timeout_ms
        expired = SessionExpired(group_id, member.member_id)
        decision.start_timer(session_key(group_id, member.member_id), timeout_ms, expired)

    def start_revocation_timer(
        self, group_id: str, member: ConsumerGroupMember, decision: GroupDecision
    ) -> None:
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
            return min(interval_ms, _WAITING_HEARTBEAT_INTERVAL_MS)
        return interval_ms

    def _assignment_interval_ms(self, group_id: str) -> int:
        overridden = self._state.settings.overrides(group_id).consumer_assignment_interval_ms
        return self._state.settings.consumer_assignment_interval_ms if overridden is None else overridden
