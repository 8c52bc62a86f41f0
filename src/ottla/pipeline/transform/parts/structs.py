"""Flattens nested structs into one level of fields."""

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.transform.parts.json import paths


def flatten(rows: DataFrame, column: str = "data", *, separator: str = "_") -> DataFrame:
    """Flattens the struct `column`: `customer.name` becomes its field `customer_name`.

    Arrays and maps stay as they are. `rows.select("data.*")` then gives the fields as columns.
    """
    schema = rows.select(column).schema[0].dataType
    if not isinstance(schema, StructType):
        raise PipelineError(
            f"flatten: the column `{column}` is {schema.simpleString()}.",
            "Give it a struct, such as parse_json returns.",
        )
    names = dict(flat_names(schema, separator))
    whole = F.col(column)
    fields = []
    for name, path in names.items():
        value = whole
        for step in path:
            value = value[step]
        fields.append(value.alias(name))
    return rows.withColumn(column, F.when(whole.isNotNull(), F.struct(*fields)))


def flat_names(schema: StructType, separator: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The flat name and the path of each field that is not a struct. Raises PipelineError if two names are equal."""
    taken: dict[str, tuple[str, ...]] = {}
    for path, kind in paths(schema):
        if isinstance(kind, StructType):
            continue
        name = separator.join(path)
        if name in taken:
            raise PipelineError(
                f"flatten: `{'.'.join(taken[name])}` and `{'.'.join(path)}` would both be `{name}`.",
                "Choose another separator.",
            )
        taken[name] = path
        yield name, path
