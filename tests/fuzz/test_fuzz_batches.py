"""Record batches from a client are read or rejected with one of Kafka's error codes, whatever their bytes."""

from random import Random

from crc32c import crc32c
from tests.fuzz.mutations import fuzz, mutate

from ottla.model.errors import KafkaError
from ottla.records.column_check import check_in_columns
from ottla.records.compression import unpack
from ottla.records.header import CRC_POSITION, CRC_START, HEADER_SIZE, check_client_batch, scan_batches
from ottla.records.record_check import CheckedRecords, check_start
from ottla.records.records import Record, build_batch, iter_records
from ottla.records.timestamps import find_by_timestamp
from ottla.records.validate import RecordRules, RecordSettings, examine

NOW_MS = 1_700_000_000_000
UNPACKED_BYTES_MAX = 1 << 20
RULES = RecordRules(require_keys=True, timestamp_before_max_ms=1_000, timestamp_after_max_ms=1_000)
SETTINGS = (
    RecordSettings(RULES),
    RecordSettings(validates_fully=True),
    *(RecordSettings(codec=codec) for codec in range(5)),
)


def some_batch(random: Random) -> bytes:
    records = [
        Record(
            index,
            NOW_MS + random.randrange(-2_000, 2_000),
            random.choice((None, b"", b"key")),
            random.choice((None, b"", bytes(random.randrange(2_000)))),
            random.choice(((), (("header", None), ("", b"value")))),
        )
        for index in range(random.choice((random.randint(1, 5), random.randint(60, 80))))
    ]
    return build_batch(records, codec=random.randrange(5))


def sealed(batch: bytes) -> bytes:
    """`batch` with a valid checksum and length, so that its records are read."""
    if len(batch) < HEADER_SIZE:
        return batch
    crc = crc32c(batch[CRC_START:]).to_bytes(4, "big")
    length = (len(batch) - 12).to_bytes(4, "big")
    return batch[:8] + length + batch[12:CRC_POSITION] + crc + batch[CRC_START:]


def test_every_reader_of_batches_reads_or_rejects_a_broken_batch() -> None:
    def case(random: Random) -> None:
        batch = mutate(random, some_batch(random))
        if random.random() < 0.8:
            batch = sealed(batch)
        try:
            position = 0
            for header in scan_batches(batch):
                check_client_batch(header)
                for _ in iter_records(batch, position, UNPACKED_BYTES_MAX):
                    pass
                one = batch[position : position + header.size]
                find_by_timestamp(one, NOW_MS, limit=UNPACKED_BYTES_MAX)
                check_start(one, header)
                examine(one, header, random.choice(SETTINGS), NOW_MS, UNPACKED_BYTES_MAX)
                position += header.size
        except KafkaError:
            pass

    fuzz(case)


def test_a_fully_validated_batch_can_be_read() -> None:
    def case(random: Random) -> None:
        batch = sealed(mutate(random, some_batch(random)))
        try:
            (header,) = scan_batches(batch)
            check_client_batch(header)
            stored, sealed_header = examine(
                batch, header, random.choice(SETTINGS), NOW_MS, UNPACKED_BYTES_MAX
            )
        except (KafkaError, ValueError):  # rejected, or not one batch
            return
        offsets = [record.offset - header.base_offset for record in iter_records(stored)]
        assert offsets == list(range(header.records_count))
        records = unpack(sealed_header.compression, memoryview(stored)[HEADER_SIZE:])
        assert check_in_columns(records, CheckedRecords(sealed_header)) == len(records)

    fuzz(case)
