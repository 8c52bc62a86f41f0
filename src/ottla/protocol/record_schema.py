"""How a record of an internal log is declared: a plain dataclass whose field metadata is kio's, so that kio reads and
writes it. A UUID of zeros is None, as in kio's own messages.
"""

from typing import ClassVar

from kio.static.constants import EntityType

BOOL = {"kafka_type": "bool"}
INT8 = {"kafka_type": "int8"}
INT16 = {"kafka_type": "int16"}
INT32 = {"kafka_type": "int32"}
INT64 = {"kafka_type": "int64"}
UINT16 = {"kafka_type": "uint16"}
STRING = {"kafka_type": "string"}
BYTES = {"kafka_type": "bytes"}
UUID = {"kafka_type": "uuid"}


class RecordSchema:
    """What kio reads from a class. `__api_key__` tells the types of one log apart."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.data
    __flexible__: ClassVar[bool] = True
    __version__: ClassVar[int] = 0
    __api_key__: ClassVar[int]


class NestedSchema(RecordSchema):
    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.nested
