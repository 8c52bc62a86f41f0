"""The errors of the pipeline. Each says what happened, to which thing, and what to do."""


class PipelineError(Exception):
    """`what` says what happened to which thing, `remedy` what to do. Both are whole sentences."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


class RetriableError(PipelineError):
    """An error that may pass by itself, as when a broker or a database is down. The runner restarts the stage."""


class PermanentStageError(PipelineError):
    """An error after which a restart would do harm, as when another run has taken over. The runner gives the stage up.

    Spark passes on only the text of an error, with its class: `query_errors` recognizes it by this name.
    """
