"""Random events in one shard: producers of both protocols with the same and different ids, lost, repeated and late
requests, fencing, timeouts, expiry, exhausted epochs, markers acknowledged in any order, and restarts.

After every step the shard equals the one rebuilt from the bytes of its log.
"""

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.unit.core.transactions.transaction_shell import (
    CLICKS,
    LAST_USABLE_EPOCH,
    ORDERS,
    ORDERS_1,
    TransactionShell,
    add_command,
    replay_as_bytes,
    verify_command,
)

from ottla.core.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    ProducerIdAndEpoch,
    VerifyPartitions,
    WriteMarkers,
)
from ottla.core.transactions.shard import TransactionShard
from ottla.core.transactions.states import ENDED, IDLE, PREPARED, TransactionState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.transaction_records.records import TransactionLogValue

IDS = ("a", "b")
TIMEOUT_MS = 10_000
EXPIRATION_MS = 120_000
REJECTIONS = {
    ErrorCode.concurrent_transactions,
    ErrorCode.invalid_producer_id_mapping,
    ErrorCode.producer_fenced,
    ErrorCode.invalid_txn_state,
}
COMMITTED = {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}

Request = InitProducerId | AddPartitions | VerifyPartitions | EndTransaction

picks = st.integers(0, 1000)
ids = st.sampled_from([IDS[0], *IDS])
versions = st.sampled_from([0, 2])
some_partitions = st.sets(st.sampled_from([ORDERS, ORDERS_1, CLICKS]), min_size=1).map(sorted)


@dataclass
class ProducerClient:
    """The state of a producer, from its own point of view."""

    transactional_id: str
    version: int
    me: ProducerIdAndEpoch | None = None


class Ledger:
    """What producers of one transactional id were promised, to check later responses."""

    def __init__(self) -> None:
        self.given: set[ProducerIdAndEpoch] = set()  # to the producer that has the id now
        self.fenced: set[ProducerIdAndEpoch] = set()  # to those before it
        self.outcomes: dict[ProducerIdAndEpoch, bool] = {}  # outcomes of transactions of version 2
        self.outcome: bool | None = None  # of the transaction that is being ended

    def give(self, producer: ProducerIdAndEpoch, starts: bool) -> None:
        if starts:
            self.fenced |= self.given
            self.given = set()
        assert producer not in self.fenced, "a fenced producer was accepted"
        assert producer.producer_epoch <= LAST_USABLE_EPOCH
        self.given.add(producer)

    def tell(self, producer: ProducerIdAndEpoch, committed: bool) -> None:
        assert self.outcomes.setdefault(producer, committed) is committed, "two outcomes for one transaction"


class TransactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clients: list[ProducerClient] = []
        self.sent: list[Request] = []
        self.asked: list[WriteMarkers] = []  # also before restarts
        self.last_asked: dict[str, WriteMarkers] = {}  # of transactions that are being ended
        self.acknowledged: dict[int, set[TopicPartition]] = {}
        self.epochs: dict[int, tuple[str, int]] = {}
        self.num_checked = 0

    @initialize(
        server_version=st.sampled_from([2, 2, 0]),
        epochs=st.dictionaries(ids, st.integers(LAST_USABLE_EPOCH - 3, LAST_USABLE_EPOCH - 1)),
        kinds=st.lists(st.tuples(ids, versions), min_size=2, max_size=3),
    )
    def begin(self, server_version: int, epochs: dict[str, int], kinds: list[tuple[str, int]]) -> None:
        """Some ids have used up nearly all of their epochs."""
        self.shell = TransactionShell(
            transaction_version=server_version,
            transactional_id_expiration_ms=EXPIRATION_MS,
            remove_expired_interval_ms=30_000,
        )
        for transactional_id, epoch in sorted(epochs.items()):
            producer_id = self.shell.new_producer_id()
            self.shell.given(
                transactional_id,
                producer_id=producer_id,
                previous_producer_id=producer_id,
                producer_epoch=epoch,
                transaction_timeout_ms=TIMEOUT_MS,
                transaction_status=TransactionState.COMPLETE_COMMIT,
            )
        self.ledgers = {transactional_id: Ledger() for transactional_id in IDS}
        self.rebuilt = TransactionShard(self.shell.machine.settings)
        for transactional_id, version in kinds:
            self.start(transactional_id, version)

    # -- producers

    @precondition(lambda self: len(self.clients) < 5)
    @rule(transactional_id=ids, version=versions)
    def start(self, transactional_id: str, version: int) -> None:
        client = ProducerClient(transactional_id, version)
        self.clients.append(client)
        client.me = self.send(self.shell.init_command(transactional_id, timeout_ms=TIMEOUT_MS))

    @rule(pick=picks, lost=st.booleans())
    def start_again(self, pick: int, lost: bool) -> None:
        client = self.client(pick)
        self.learn(client, self.send(self.init_command(client)), lost)

    @rule(pick=picks, lost=st.booleans())
    def start_over(self, pick: int, lost: bool) -> None:
        client = self.client(pick)
        known = client.me in self.ledgers[client.transactional_id].given  # and has not expired
        response = self.send(self.init_command(client, client.me))
        if response is not None and known:
            again = self.send(self.init_command(client, client.me))
            assert again == response, "a retry got another response"
        self.learn(client, response, lost)

    @rule(pick=picks, partitions=some_partitions)
    def add(self, pick: int, partitions: list[TopicPartition]) -> None:
        client = self.client(pick)
        if client.me is not None:
            self.send(
                add_command(
                    client.me,
                    *partitions,
                    transactional_id=client.transactional_id,
                    version=client.version,
                )
            )

    @rule(pick=picks, partition=st.sampled_from([ORDERS, CLICKS]))
    def verify(self, pick: int, partition: TopicPartition) -> None:
        client = self.client(pick)
        if client.me is not None:
            self.send(verify_command(client.me, partition, transactional_id=client.transactional_id))

    @rule(pick=picks, commit=st.booleans(), lost=st.booleans(), version=versions)
    def end(self, pick: int, commit: bool, lost: bool, version: int) -> None:
        client = self.client(pick)
        if client.me is not None:
            command = self.shell.end_command(client.me, commit, client.transactional_id, version)
            self.learn(client, self.send(command), lost)

    @rule(pick=picks, commit=st.booleans(), restarts=st.booleans())
    def end_and_ask_again(self, pick: int, commit: bool, restarts: bool) -> None:
        """With version 2 the response is the same, even after a restart of the coordinator."""
        client = self.client(pick)
        if client.me is None:
            return
        command = self.shell.end_command(client.me, commit, client.transactional_id)
        response = self.send(command)
        if response is not None:
            if restarts:
                self.restart()
            self.acknowledge_outstanding()
            again = self.send(replace(command, new_producer_id=self.shell.new_producer_id()))
            assert again == response, "a retry got another response"
        self.learn(client, response, lost=False)

    @rule(pick=picks, partitions=some_partitions, commit=st.booleans(), acknowledges=st.booleans())
    def whole_transaction(
        self, pick: int, partitions: list[TopicPartition], commit: bool, acknowledges: bool
    ) -> None:
        self.add(pick, partitions)
        self.end(pick, commit, False, self.client(pick).version)
        if acknowledges:
            self.acknowledge_outstanding()

    @rule(transactional_id=ids, version=versions, commit=st.booleans(), ends=st.booleans())
    def stranger(self, transactional_id: str, version: int, commit: bool, ends: bool) -> None:
        """A client guesses the present id and epoch, whether a producer has them or not."""
        record = self.shell.machine.durable_state().get(transactional_id)
        if record is not None:
            guess = (record.producer_id, record.producer_epoch)
            self.send(
                self.shell.end_command(guess, commit, transactional_id, version)
                if ends
                else add_command(guess, ORDERS, transactional_id=transactional_id, version=version)
            )

    @precondition(lambda self: self.sent)
    @rule(pick=picks)
    def late_duplicate(self, pick: int) -> None:
        """Any earlier request arrives again; its response is lost."""
        command = self.sent[-1 - pick % len(self.sent)]
        if isinstance(command, InitProducerId | EndTransaction):
            command = replace(command, new_producer_id=self.shell.new_producer_id())
        self.send(command)

    def client(self, pick: int) -> ProducerClient:
        """Mostly a producer that is not fenced."""
        clients = self.clients
        if pick % 3:
            clients = [
                each for each in clients if each.me in self.ledgers[each.transactional_id].given
            ] or clients
        return clients[pick % len(clients)]

    def init_command(
        self, client: ProducerClient, expected: ProducerIdAndEpoch | None = None
    ) -> InitProducerId:
        return self.shell.init_command(client.transactional_id, expected, TIMEOUT_MS)

    def learn(self, client: ProducerClient, response: ProducerIdAndEpoch | None, lost: bool) -> None:
        if response is not None and not lost:
            client.me = response

    # -- events of the coordinator

    @precondition(lambda self: self.asked)
    @rule(pick=picks, some=some_partitions)
    def acknowledge(self, pick: int, some: list[TopicPartition]) -> None:
        """Reports some markers, maybe late, maybe of an earlier transaction."""
        self.acknowledge_one(self.asked[-1 - pick % len(self.asked)], some)

    @rule()
    def acknowledge_outstanding(self) -> None:
        for markers in list(self.last_asked.values()):
            self.acknowledge_one(markers, list(markers.partitions))

    def acknowledge_one(self, markers: WriteMarkers, partitions: list[TopicPartition]) -> None:
        self.acknowledged.setdefault(id(markers), set()).update(partitions)
        self.shell.ask(MarkersWritten(markers=markers, partitions=tuple(partitions)))
        self.after_event()

    @rule(ms=st.sampled_from([1, 4000, TIMEOUT_MS, TIMEOUT_MS, EXPIRATION_MS + 30_000]))
    def time_passes(self, ms: int) -> None:
        self.shell.advance(ms)
        self.after_event()

    @rule()
    def restart(self) -> None:
        self.shell.restart()
        self.after_event()

    # -- invariants

    def send(self, command: Request) -> ProducerIdAndEpoch | None:
        """Returns the producer's next id and epoch, if the response contains them."""
        self.sent.append(command)
        ledger = self.ledgers[command.transactional_id]
        fenced = claimed(command) in ledger.fenced
        before, written = self.shell.machine.durable_state(), len(self.shell.records)
        if isinstance(command, VerifyPartitions):
            self.check_verification(command)
        response = self.shell.replies[self.shell.decide(command)]
        if isinstance(response, KafkaError):
            assert response.code in REJECTIONS
            fences = isinstance(command, InitProducerId) and len(self.shell.records) > written
            assert fences or self.shell.machine.durable_state() == before
        assert not fenced or (isinstance(response, KafkaError) and len(self.shell.records) == written)
        self.after_event()
        if not isinstance(response, ProducerIdAndEpoch):
            return None
        ledger.give(response, starts=isinstance(command, InitProducerId) and command.expected is None)
        if isinstance(command, EndTransaction):
            state = self.shell.machine.durable_state()[command.transactional_id].transaction_status
            assert state in ENDED
            assert (state in COMMITTED) == command.commit
            if command.transaction_version == 2:
                ledger.tell(ProducerIdAndEpoch(command.producer_id, command.producer_epoch), command.commit)
        return response

    def check_verification(self, command: VerifyPartitions) -> None:
        """`has_partitions`, for leaders on the coordinator's broker, agrees with the command."""
        producer = (command.transactional_id, command.producer_id, command.producer_epoch)
        response = self.shell.replies[self.shell.decide(command)]
        rejects = isinstance(response, KafkaError) or any(code is not ErrorCode.none for _, code in response)
        assert self.shell.machine.has_partitions(*producer, command.partitions) is not rejects

    def after_event(self) -> None:
        for key, value in self.shell.records[self.num_checked :]:
            self.check_record(key.transactional_id, value)
            replay_as_bytes(key, value, self.rebuilt)
        self.num_checked = len(self.shell.records)
        known = {id(markers) for markers in self.asked}
        for markers in self.shell.effects:
            if id(markers) not in known:
                assert markers.commit is self.ledgers[markers.transactional_id].outcome
                self.asked.append(markers)
                self.last_asked[markers.transactional_id] = markers

    def check_record(self, transactional_id: str, value: TransactionLogValue | None) -> None:
        ledger = self.ledgers[transactional_id]
        if value is None:
            # Its owner is no longer known, so any producer may claim to have been it.
            assert ledger.outcome is None
            self.ledgers[transactional_id] = Ledger()
            return
        owner, epoch = self.epochs.get(value.producer_id, (transactional_id, -1))
        assert owner == transactional_id, "two transactional ids share a producer id"
        assert value.producer_epoch >= epoch, "an epoch went back"
        self.epochs[value.producer_id] = (transactional_id, value.producer_epoch)
        committed = value.transaction_status in COMMITTED
        if value.transaction_status in PREPARED:
            assert ledger.outcome is None, "two outcomes for one transaction"
            ledger.outcome = committed
            if value.client_transaction_version == 2:
                ended = ProducerIdAndEpoch(value.producer_id, value.producer_epoch - 1)
                if ended in ledger.given:
                    ledger.tell(ended, committed)
        elif ledger.outcome is not None:
            assert value.transaction_status in ENDED, "an outcome was changed"
            assert ledger.outcome is committed, "complete with the other outcome"
            ledger.outcome = None
            markers = self.last_asked.pop(transactional_id, None)
            if markers is not None:
                missing = set(markers.partitions) - self.acknowledged.get(id(markers), set())
                assert not missing, "complete, but some partition has no marker"

    @invariant()
    def rebuilt_equals_live(self) -> None:
        assert self.rebuilt.durable_state() == self.shell.machine.durable_state()

    def teardown(self) -> None:
        """In the end every transaction completes, and every id can be used again."""
        if not hasattr(self, "shell"):
            return
        self.shell.advance(TIMEOUT_MS)
        self.shell.acknowledge_all()
        assert all(
            record.transaction_status in IDLE for record in self.shell.machine.durable_state().values()
        )
        for transactional_id in IDS:
            producer = self.shell.init(transactional_id)
            self.shell.add(producer, transactional_id=transactional_id)


def claimed(command: Request) -> ProducerIdAndEpoch | None:
    """The producer id and epoch of the request."""
    if isinstance(command, InitProducerId):
        return command.expected
    return ProducerIdAndEpoch(command.producer_id, command.producer_epoch)


TestTransactionModel = TransactionModel.TestCase
TestTransactionModel.settings = examples(100, stateful_step_count=40)
