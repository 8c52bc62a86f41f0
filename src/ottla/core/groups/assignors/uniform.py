"""`uniform`: the same number of partitions for everybody, as little movement as that allows, then near replicas."""

from collections.abc import Mapping
from uuid import UUID

from ottla.core.groups.assignors import uniform_heterogeneous, uniform_homogeneous
from ottla.core.groups.assignors.draft import Draft
from ottla.core.groups.assignors.racks import move_into_racks
from ottla.core.groups.assignors.spec import GroupAssignment, GroupSpec
from ottla.core.groups.topics import TopicInfo


class UniformAssignor:
    """Balance comes before stickiness, stickiness before racks: what a member keeps is never moved for its rack."""

    name = "uniform"

    def assign(self, group: GroupSpec, topics: Mapping[UUID, TopicInfo]) -> GroupAssignment:
        draft = Draft(group, topics)
        if group.is_homogeneous:
            uniform_homogeneous.balance(draft)
        else:
            uniform_heterogeneous.balance(draft)
        move_into_racks(draft)
        return draft.assignment()
