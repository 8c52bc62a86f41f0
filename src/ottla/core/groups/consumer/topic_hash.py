"""A hash of a group's topics, which is stored with the group: if it changes, the group needs a new target (KIP-1101).

It is written to the log, so it must be the same in every release and every process.
"""

from collections.abc import Iterable
from hashlib import blake2b

from ottla.core.groups.state import ClusterTopics, TopicInfo

_FORMAT = b"\x00"  # increment it if the input of the hash changes


class TopicHashes:
    """A cache of topic hashes, recomputed only for topics that have changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicInfo, bytes]] = {}

    def of_group(self, names: Iterable[str], topics: ClusterTopics) -> int:
        """Ignores topics that do not exist. 0 without topics."""
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
    """Prefixed by its length, so that different sequences of texts have different hashes."""
    encoded = text.encode()
    digest.update(len(encoded).to_bytes(4, "big"))
    digest.update(encoded)
