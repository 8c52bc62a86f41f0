"""MySQL's character sets as Python's codecs."""

from collections.abc import Callable

from ottla.pipeline.errors import PipelineError

BINARY = "binary"
_CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "tis620": "tis-620",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
}
_LATIN1 = ("latin1", "cp1252")
# In MySQL's latin1, the five bytes that Windows-1252 leaves undefined are the characters of the same number.
_LATIN1_TABLE = "".join(bytes([byte]).decode("cp1252", "replace") for byte in range(256))
_LATIN1_TABLE = "".join(chr(at) if char == "�" else char for at, char in enumerate(_LATIN1_TABLE))


def charset_decoder(charset: str) -> Callable[[bytes], str]:
    """Raises LookupError for a character set that Python has no codec for."""
    if charset in _LATIN1:
        return lambda data: "".join(map(_LATIN1_TABLE.__getitem__, data))
    codec = _CODECS.get(charset, charset)
    "".encode(codec)
    return lambda data: data.decode(codec)


def column_decoder(charset: str, column: str, table: str) -> Callable[[bytes], str]:
    try:
        return charset_decoder(charset)
    except LookupError:
        raise PipelineError(
            f"Column `{column}` of {table} has the character set {charset}, which is not supported.",
            "Convert the column to utf8mb4, or leave the table out of `tables`.",
        ) from None
