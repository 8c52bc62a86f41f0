"""The files that `ottla pipeline init` writes: a small pipeline that runs as it is, with comments."""

from pathlib import Path

from ottla.pipeline.config import FILE_NAME, NAME
from ottla.pipeline.errors import PipelineError

PIPELINE = """\
# A pipeline: files -> raw -> orders, and raw -> archive. All settings: docs/pipeline/settings.md
# Check it with `ottla pipeline validate`, run it with `ottla pipeline run`.

# The stages write exactly once under an id that is made of this name: do not change it later.
name = "{name}"

[cluster]
bootstrap = "{bootstrap}"
# For the clients, in librdkafka's names. ${{NAME}} is replaced by the environment variable.
# properties = {{ "security.protocol" = "SASL_SSL", "sasl.password" = "${{KAFKA_PASSWORD}}" }}

[spark]
master = "local[*]"  # or spark://HOST:PORT, yarn, k8s://URL
checkpoints = "checkpoints"  # how far each stage is: do not delete them
interval = "1 second"
conf = {{ "spark.driver.memory" = "1g" }}

# Topics that the pipeline creates if they are missing.
[topics.raw]
partitions = 2
# How long raw is kept. The archive must read it before that; it keeps it forever.
configs = {{ "retention.ms" = 604800000 }}

[topics.orders]
partitions = 2

[topics.orders-dead]
partitions = 1

# Every line of every finished file in this folder becomes a record of raw, byte for byte.
[sources.files]
kind = "spooldir"
folder = "spool"
topic = "raw"

# Changes of a database, in Debezium's envelope, into the same topic or another.
# [sources.shop]
# kind = "mysql"
# host = "127.0.0.1"
# user = "ottla"
# password = "${{MYSQL_PASSWORD}}"
# tables = ["shop.orders"]
# topic = "raw"

# Records that the function rejects go to the dead letters, with the reason. The others are not affected.
[transforms.orders]
from = "raw"
to = "orders"
function = "transforms.py:orders"
dead_letters = "orders-dead"

# Parquet by topic, date and hour, kept forever. Also s3a://BUCKET/FOLDER or hdfs://...
[sinks.archive]
kind = "archive"
topics = ["raw"]
path = "archive"
every = "10 seconds"  # minutes make fewer and larger files
"""

TRANSFORMS = '''\
"""The transforms of this pipeline: functions from the rows of a topic to the rows of another."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.pipeline.transform.parts import parse_json, reject, write_json


def orders(raw: DataFrame) -> DataFrame:
    """Orders with their total, keyed by customer. Rows that a part rejects become dead letters."""
    schema = "id long, customer string, item string, quantity int, price decimal(10,2)"
    rows = parse_json(raw, schema, required=["id", "customer"])
    rows = reject(rows, "data.quantity <= 0", "the quantity is not positive")
    total = (F.col("data.quantity") * F.col("data.price")).cast("decimal(12,2)")
    rows = rows.withColumn("data", F.col("data").withField("total", total))
    rows = rows.withColumn("key", F.col("data.customer").cast("binary"))
    return write_json(rows, "data")
'''

_EXAMPLE = """\
{"id": 1, "customer": "ada", "item": "apples", "quantity": 3, "price": 0.5}
{"id": 2, "customer": "bob", "item": "pears", "quantity": 1, "price": 0.8}
"""


def write_template(folder: Path, bootstrap: str) -> list[Path]:
    """Writes the files and returns their paths. Never overwrites a file."""
    name = folder.resolve().name
    texts = {
        FILE_NAME: PIPELINE.format(name=name if NAME.fullmatch(name) else "orders", bootstrap=bootstrap),
        "transforms.py": TRANSFORMS,
        "spool/example.jsonl": _EXAMPLE,
    }
    paths = {folder / name: text for name, text in texts.items()}
    for path in paths:
        if path.exists():
            raise PipelineError(f"{path} exists already.", "Name another folder, or remove it first.")
    try:
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            f"{folder} cannot be written: {error.strerror}.",
            "Name another folder, or allow this user to write there.",
        ) from None
    return list(paths)
