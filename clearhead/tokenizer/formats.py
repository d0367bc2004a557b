"""Files that hold a tokenizer."""

import json
import os
from pathlib import Path

from clearhead.errors import InputError
from clearhead.tokenizer import companions, huggingface
from clearhead.tokenizer.base import Tokenizer


def load(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`, or of the folder that holds one."""
    file = Path(path)
    if file.is_dir():
        file = file / "tokenizer.json"
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: a tokenizer.json is an object, not a {type(content).__name__}")
    read = companions.from_json if "clearhead" in content else huggingface.from_json
    return read(content, str(file))
