"""What a person is told when the pipeline cannot go on: what happened, to which thing, and what to do."""


class PipelineError(Exception):
    """`what` names the thing and what happened to it; `remedy` says what to do. Both are whole sentences."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


class PassingError(PipelineError):
    """A fault that may pass by itself: a broker or a database that is away. The runner starts the stage again."""
