"""Recorded requests of real clients (see `record_corpus.py`)."""

import base64
import json
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded_requests.jsonl"
TOPIC = "corpus"


def recorded_requests() -> list[bytes]:
    """Returns frames without their length field."""
    return [base64.b64decode(json.loads(line)["frame"]) for line in RECORDED.read_text().splitlines()]
