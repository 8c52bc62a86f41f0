"""The producer table agrees with a simple oracle that keeps the whole log and reads it for every check."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.examples import examples
from tests.unit.core.partition.batches import batch, marker

from ottla.core.partition.producers import NO_VERIFICATION, Duplicate, ProducerStateTable
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import BatchHeader

SEQUENCES = 2**31
producer_ids = st.integers(0, 2)
epochs = st.integers(0, 2)


class Oracle:
    """The log as a list of (header, is the marker's transaction committed)."""

    def __init__(self) -> None:
        self.log: list[BatchHeader] = []
        self.high_watermark = 0

    def of(self, producer_id: int) -> list[BatchHeader]:
        return [header for header in self.log if header.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int | None:
        mine = self.of(producer_id)
        return mine[-1].producer_epoch if mine else None

    def data(self, producer_id: int) -> list[BatchHeader]:
        """The data batches since the epoch last changed."""
        found: list[BatchHeader] = []
        for header in self.of(producer_id):
            if found and header.producer_epoch != found[-1].producer_epoch:
                found = []
            if not header.is_control:
                found.append(header)
        if found and found[-1].producer_epoch != self.epoch(producer_id):
            return []
        return found

    def open_since(self, producer_id: int) -> int | None:
        first = None
        for header in self.of(producer_id):
            if header.is_control:
                first = None
            elif header.is_transactional and first is None:
                first = header.base_offset
        return first

    def expected(self, header: BatchHeader) -> Duplicate | ErrorCode | None:
        epoch = self.epoch(header.producer_id)
        if epoch is None:
            return None
        if header.producer_epoch < epoch:
            return ErrorCode.invalid_producer_epoch
        if header.producer_epoch > epoch:
            if header.base_sequence != 0:
                return ErrorCode.out_of_order_sequence_number
        else:
            data = self.data(header.producer_id)
            for known in data[-5:]:
                if (known.base_sequence, known.records_count) == (header.base_sequence, header.records_count):
                    return Duplicate(known.base_offset, known.last_offset, known.max_timestamp)
            following = (data[-1].last_sequence + 1) % SEQUENCES if data else 0
            if header.base_sequence != following:
                return ErrorCode.out_of_order_sequence_number
        if self.open_since(header.producer_id) is not None and not header.is_transactional:
            return ErrorCode.invalid_txn_state
        return None

    def first_unstable(self) -> int | None:
        unstable: list[int] = []
        for producer_id in range(3):
            first = None
            for header in self.of(producer_id):
                if header.is_control:
                    if first is not None and header.base_offset >= self.high_watermark:
                        unstable.append(first)
                    first = None
                elif header.is_transactional and first is None:
                    first = header.base_offset
            if first is not None:
                unstable.append(first)
        return min(unstable, default=None)


class ProducersAgainstOracle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerStateTable()
        self.oracle = Oracle()
        self.log_end_offset = 0

    @rule(
        producer_id=producer_ids,
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        guess=st.sampled_from(["next", "next", "next", "retry", "zero", "gap", "top"]),
        back=st.integers(1, 6),
        count=st.integers(1, 3),
        transactional=st.booleans(),
    )
    def produce(
        self, producer_id: int, epoch_step: int, guess: str, back: int, count: int, transactional: bool
    ) -> None:
        data = self.oracle.data(producer_id)
        following = (data[-1].last_sequence + 1) % SEQUENCES if data else 0
        sequence = {
            "next": following,
            "zero": 0,
            "gap": (following + 3) % SEQUENCES,
            "top": SEQUENCES - 2,
        }.get(guess, 0)
        if guess == "retry" and data:
            retried = data[-min(back, len(data))]
            sequence, count = retried.base_sequence, retried.records_count
        header = batch(
            offset=self.log_end_offset,
            count=count,
            producer_id=producer_id,
            epoch=max(0, (self.oracle.epoch(producer_id) or 0) + epoch_step),
            sequence=sequence,
            timestamp=self.log_end_offset,
            transactional=transactional,
        )
        expected = self.oracle.expected(header)
        response: Duplicate | ErrorCode | None
        try:
            response = self.table.check(header, NO_VERIFICATION)
        except KafkaError as error:
            response = error.code
        assert response == expected
        if response is None:
            self.table.update(header)
            self.oracle.log.append(header)
            self.log_end_offset += count

    @rule(producer_id=producer_ids, epoch_step=st.integers(0, 1), commit=st.booleans())
    def end_transaction(self, producer_id: int, epoch_step: int, commit: bool) -> None:
        epoch = (self.oracle.epoch(producer_id) or 0) + epoch_step
        header = marker(offset=self.log_end_offset, producer_id=producer_id, epoch=epoch)
        first = self.oracle.open_since(producer_id)
        completed = self.table.complete_transaction(header, commit=commit, coordinator_epoch=0)
        if first is None:
            assert completed is None
        else:
            assert completed is not None
            assert (completed.first_offset, completed.last_offset) == (first, self.log_end_offset)
            assert completed.is_aborted is not commit
        self.oracle.log.append(header)
        self.log_end_offset += 1

    @rule(share=st.floats(0, 1))
    def replicate(self, share: float) -> None:
        high_watermark = self.oracle.high_watermark
        high_watermark += int((self.log_end_offset - high_watermark) * share)
        self.oracle.high_watermark = high_watermark
        self.table.on_high_watermark(high_watermark)

    @rule()
    def restart_from_a_replay_of_the_log(self) -> None:
        self.table = ProducerStateTable()
        for header in self.oracle.log:
            if header.is_control:
                self.table.complete_transaction(header, commit=True, coordinator_epoch=0)
            else:
                self.table.update(header)
        self.table.on_high_watermark(self.oracle.high_watermark)

    @invariant()
    def the_first_unstable_offset_is_what_the_log_says(self) -> None:
        assert self.table.first_unstable_offset() == self.oracle.first_unstable()


ProducersAgainstOracle.TestCase.settings = examples(60, stateful_step_count=40)
TestProducersAgainstOracle = ProducersAgainstOracle.TestCase
