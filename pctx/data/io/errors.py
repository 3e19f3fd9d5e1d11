"""ReadError: the one way in which reading a file fails."""


class ReadError(ValueError):
    """A file cannot be read; the message is one sentence that begins with its name."""
