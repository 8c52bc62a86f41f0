"""PostgreSQL's positions in its log (LSN): the text `16/B374D848` and the number that it stands for."""


def parse_lsn(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
