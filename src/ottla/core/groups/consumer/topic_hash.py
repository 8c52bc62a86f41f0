"""A hash of the topics of a group, kept with the group: where it differs, the group must be assigned anew (KIP-1101).

It stands in the log, so it must come out the same in every release and every process.
"""

from collections.abc import Iterable
from hashlib import blake2b

from ottla.core.groups.state import ClusterTopics, TopicInfo

_FORMAT = b"\x00"  # to be counted up where what goes into a hash changes


class TopicHashes:
    """The hashes of topics, computed again only for those that have changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicInfo, bytes]] = {}

    def of_group(self, names: Iterable[str], topics: ClusterTopics) -> int:
        """Topics that are not there do not count. No topics: 0."""
        hashes = []
        for name in sorted(names):
            topic = topics.find(name)
            if topic is None:
                self._known.pop(name, None)
                continue
            known = self._known.get(name)
            if known is None or known[0] != topic:
                known = self._known[name] = (topic, _hash_of(topic))
            hashes.append(known[1])
        if not hashes:
            return 0
        return int.from_bytes(blake2b(b"".join(hashes), digest_size=8).digest(), "big", signed=True)


def _hash_of(topic: TopicInfo) -> bytes:
    digest = blake2b(_FORMAT, digest_size=8)
    digest.update(topic.topic_id.bytes)
    _update(digest, topic.name)
    digest.update(topic.num_partitions.to_bytes(4, "big"))
    for partition, racks in enumerate(topic.racks):
        digest.update(partition.to_bytes(4, "big"))
        for rack in sorted(racks):
            _update(digest, rack)
    return digest.digest()


def _update(digest: blake2b, text: str) -> None:
    """With its length before it, so that two neighbours cannot pass for one."""
    encoded = text.encode()
    digest.update(len(encoded).to_bytes(4, "big"))
    digest.update(encoded)
