"""What processes do that `killed_process` kills. Each function gets the folder of the archive."""

from ottla.pipeline.archive import store
from ottla.pipeline.archive.ownership import claim_topics
from ottla.pipeline.archive.store import Archive

CONDENSE_AT = 3


def start(folder: str) -> None:
    """The start of a stage: it claims its topic and condenses what there is, also of an older Ottla."""
    store.CONDENSE_AT = CONDENSE_AT
    claim_topics(Archive.at(folder), ["raw"])
