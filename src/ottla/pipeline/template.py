"""What `ottla pipeline init` writes: a small pipeline that runs as it is, with comments on what one may change."""

from pathlib import Path

from ottla.pipeline.config import FILE_NAME, NAME
from ottla.pipeline.errors import PipelineError

PIPELINE = """\
# A pipeline: files -> raw -> orders, and raw -> archive. All settings: docs/pipeline/settings.md
# Check it with `ottla pipeline validate`, run it with `ottla pipeline run`.

# Part of the identity under which the stages write exactly once: choose it once, and keep it.
name = "{name}"

[cluster]
bootstrap = "{bootstrap}"
# Of the clients, in librdkafka's names. ${{NAME}} is taken from the environment.
# properties = {{ "security.protocol" = "SASL_SSL", "sasl.password" = "${{KAFKA_PASSWORD}}" }}

[spark]
master = "local[*]"  # or spark://HOST:PORT, yarn, k8s://URL
checkpoints = "checkpoints"  # how far each stage is: do not delete it
interval = "1 second"
conf = {{ "spark.sql.shuffle.partitions" = 2, "spark.driver.memory" = "1g" }}

# Topics that are made where they are missing.
[topics.raw]
partitions = 2
# How long raw is kept. The archive has to read it before; it keeps it for ever.
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

# Changes of a database, in Debezium's envelope, into the same topic or one of their own.
# [sources.shop]
# kind = "mysql"
# host = "127.0.0.1"
# user = "ottla"
# password = "${{MYSQL_PASSWORD}}"
# tables = ["shop.orders"]
# topic = "raw"

# What the function cannot read goes to the dead letters, with the reason; the rest goes on.
[transforms.orders]
from = "raw"
to = "orders"
function = "transforms.py:orders"
dead_letters = "orders-dead"

# Parquet by topic, date and hour, for ever. Also s3a://BUCKET/FOLDER or hdfs://...
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
    """Orders with their total, keyed by customer. Rows that a part cannot take become dead letters."""
    schema = "id long, customer string, item string, quantity int, price decimal(10,2)"
    rows = parse_json(raw, schema, required=["id", "customer"])
    rows = reject(rows, "data.quantity <= 0", "an order of nothing")
    total = (F.col("data.quantity") * F.col("data.price")).cast("decimal(12,2)")
    rows = rows.withColumn("data", F.col("data").withField("total", total))
    rows = rows.withColumn("key", F.col("data.customer").cast("binary"))
    return write_json(rows, "data")
'''

EXAMPLE = """\
{"id": 1, "customer": "ada", "item": "apples", "quantity": 3, "price": 0.5}
{"id": 2, "customer": "bob", "item": "pears", "quantity": 1, "price": 0.8}
"""


def write_template(folder: Path, bootstrap: str) -> list[Path]:
    """Writes the files and returns their paths. Never writes over what is there."""
    name = folder.resolve().name
    texts = {
        FILE_NAME: PIPELINE.format(name=name if NAME.fullmatch(name) else "orders", bootstrap=bootstrap),
        "transforms.py": TRANSFORMS,
        "spool/example.jsonl": EXAMPLE,
    }
    paths = {folder / name: text for name, text in texts.items()}
    for path in paths:
        if path.exists():
            raise PipelineError(f"{path} is there already.", "Name another folder, or remove it first.")
    try:
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            f"{folder} cannot be written: {error.strerror}.", "Name another folder, or give it the rights."
        ) from None
    return list(paths)
