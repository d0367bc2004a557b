"""The one exception for a user's mistake, and text made safe to show.

Its message is written for the person who made the mistake: it names the file, line, key or tensor, what was
found and what was wanted. The command line prints it without a traceback and exits with status 2.
"""

import re

# C0 and C1 control characters and DEL, with which a file could drive the terminal it is shown on, and half characters,
# which no file can hold
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class InputError(ValueError):
    """Something the caller gave cannot be used, and the message says what and why, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless the condition holds."""
    if not condition:
        raise InputError(message)


def visible(text: str, keep: str = "") -> str:
    """The text with control characters written out (an escape as \\u001b), but for those to `keep`: what comes from
    files and is shown to people must not move their cursor, recolour their screen or forge a line."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)
