"""The data source `format("ottla")`."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ottla.pipeline.spark.options import IGNORED, KNOWN, extras_of, read_options, warn_of_unknown
from ottla.pipeline.spark.rows import columns

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter


class OttlaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        warn_of_unknown(self.options, KNOWN, IGNORED)
        return columns(extras_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.pipeline.spark.batch_reader import BatchReader

        return BatchReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ottla.pipeline.spark.stream_reader import StreamReader

        return StreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        from ottla.pipeline.spark.sink import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":
        from ottla.pipeline.spark.sink import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)
