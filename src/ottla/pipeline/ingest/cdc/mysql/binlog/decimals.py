"""DECIMAL values in the binlog."""

from collections.abc import Callable

_DIGITS_PER_GROUP = 9
_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_decoder(precision: int, decimals: int) -> Callable[[bytes, int], tuple[str, int]]:
    """Groups of nine digits, four bytes each; the first and the last group are shorter. Negative: all bits inverted."""
    before, after = precision - decimals, decimals
    leading, whole_groups = before % _DIGITS_PER_GROUP, before // _DIGITS_PER_GROUP
    fraction_groups, trailing = divmod(after, _DIGITS_PER_GROUP)
    groups = [leading] * (leading > 0) + [_DIGITS_PER_GROUP] * (whole_groups + fraction_groups)
    groups += [trailing] * (trailing > 0)
    width = sum(_GROUP_BYTES[digits] for digits in groups)

    def decode(data: bytes, at: int) -> tuple[str, int]:
        end = at + width
        raw = int.from_bytes(data[at:end], "big") ^ 1 << (8 * width - 1)
        negative = raw >> (8 * width - 1) & 1
        if negative:
            raw ^= (1 << 8 * width) - 1
        stored, begin, digits = raw.to_bytes(width, "big"), 0, []
        for count in groups:
            size = _GROUP_BYTES[count]
            digits.append(f"{int.from_bytes(stored[begin : begin + size], 'big'):0{count}d}")
            begin += size
        text = "".join(digits)
        whole = text[:before].lstrip("0") or "0"
        return ("-" if negative else "") + whole + ("." + text[before:] if after else ""), end

    return decode
