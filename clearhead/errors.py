"""The one exception for a user's mistake.

Its message is written for the person who made the mistake: it names the file, line, key or tensor, what was
found and what was wanted. The command line prints it without a traceback and exits with status 2.
"""


class InputError(ValueError):
    """Something the caller gave cannot be used, and the message says what and why."""


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless the condition holds."""
    if not condition:
        raise InputError(message)
