"""The model of a log, which moves between two data directories while it is appended to and truncated."""

import uuid

from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.examples import examples
from tests.unit.storage.log_builder import NOW_MS
from tests.unit.storage.test_log_model import LogMachine

from ottla.storage.replica_move import ReplicaMove

TOPIC_ID = uuid.UUID(int=1)
OPERATIONS = ("append", "append", "truncate", "new_leader", "retention", "delete_records", "nothing")

Operations = list[tuple[str, float]]
operations = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.floats(0, 1)), max_size=3)


class MoveMachine(LogMachine):
    def change(self, operations: Operations) -> None:
        for name, fraction in operations:
            match name:
                case "append":
                    self.append([1 + int(4 * fraction)] * 3, 40, 5, 0)
                case "truncate":
                    self.truncate(fraction)
                case "new_leader":
                    self.new_leader()
                case "retention":
                    self.retention(fraction)
                case "delete_records":
                    self.delete_records(fraction)

    @rule(
        copies=st.lists(st.tuples(operations, operations, st.integers(1, 4)), min_size=1, max_size=3),
        last=st.lists(operations, max_size=2),
    )
    def move_to_other_directory(
        self, copies: list[tuple[Operations, Operations, int]], last: list[Operations]
    ) -> None:
        """A copy takes time. The log changes during each one, and after it."""
        target = "/other" if self.directory.startswith("/data") else "/data"
        self.disk.make_dirs(target)
        self.disk.sync_dir("/")
        move = ReplicaMove(self.disk, self.log, target, uuid.UUID(int=3))
        for during, after, count in copies:
            segments, truncations = move.seal(NOW_MS)[:count], self.log.truncations
            move.copy(segments)
            self.change(during)
            move.mark_copied(segments, truncations)
            self.change(after)
        for during in [*last, []]:
            if self.finish(move, during):
                break
        assert self.log.directory == self.directory == f"{target}/{self.log.topic_partition}"

    def finish(self, move: ReplicaMove, during: Operations) -> bool:
        """As `LogDirs.plan_last_copy` and `LogDirs.finish_move`."""
        last, old = move.plan_last_copy(TOPIC_ID, NOW_MS), self.log
        last.run([])
        self.change(during)
        move.mark_copied(last.left, last.truncations)
        if not last.is_current:
            return False
        move.copy_active()
        old.delete_log(uuid.UUID(int=2), NOW_MS).perform(self.disk)
        self.log = move.replace(last)
        self.directory = self.log.directory
        self.disk.sync_dir(move.path)
        self.disk.sync_dir(old.directory.rpartition("/")[0])
        return True


TestMovedLogModel = MoveMachine.TestCase
TestMovedLogModel.settings = examples(80, stateful_step_count=30)
