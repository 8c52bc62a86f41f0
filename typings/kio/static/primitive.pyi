import datetime
from typing import TypeAlias

Records: TypeAlias = bytes
PhantomStr: TypeAlias = str
i8: TypeAlias = int
i16: TypeAlias = int
i32: TypeAlias = int
i64: TypeAlias = int
u8: TypeAlias = int
u16: TypeAlias = int
u32: TypeAlias = int
u64: TypeAlias = int
uvarint: TypeAlias = int
uvarlong: TypeAlias = int
svarint: TypeAlias = int
svarlong: TypeAlias = int
f64: TypeAlias = float
i32Timedelta: TypeAlias = datetime.timedelta
i64Timedelta: TypeAlias = datetime.timedelta
TZAware: TypeAlias = datetime.datetime
TZAwareMicros: TypeAlias = datetime.datetime
