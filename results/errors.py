"""The two ways in which results go wrong: something outside us, or something inside."""


class ResultsError(Exception):
    """A run cannot be written or read. The message names the file and the way out."""


class InvariantError(Exception):
    """A run contradicts what mainspring promises, so its numbers must not be used.

    The message names the request or action, the GPU, and the values that do not fit.
    """
