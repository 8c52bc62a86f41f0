"""Parses Java's .properties syntax, the format of Kafka's server.properties."""

_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Handles comments (# and !), the separators =, : and space, lines continued by a backslash, and escapes.

    Of a duplicate key the last value counts, as in Java. Raises ValueError if a \\u escape is malformed.
    """
    properties = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued: str | None = None
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_SPACE)
        if continued is None and (not line or line[0] in "#!"):
            continue
        line = (continued or "") + line
        if _ends_with_escape(line):
            continued = line[:-1]
        else:
            lines.append(line)
            continued = None
    if continued:
        lines.append(continued)
    return lines


def _ends_with_escape(line: str) -> bool:
    """Whether the line continues: it ends with an odd number of backslashes (two are one escaped backslash)."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _SPACE:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACE)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                char = _unicode(text, position)
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        parts.append(char)
    # Java writes a character outside the basic plane as two escapes; this joins them.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16")


def _unicode(text: str, position: int) -> str:
    digits = text[position : position + 4]
    try:
        if len(digits) < 4:
            raise ValueError
        return chr(int(digits, 16))
    except ValueError:
        raise ValueError(
            f"Malformed escape \\u{digits} in {text!r}: four hexadecimal digits must follow \\u"
        ) from None
