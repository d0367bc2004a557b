"""Runs in other people's formats: `clearhead export RUN DIR --to FORMAT`, one format a file.

Each format says which of our settings it can follow, and a run that uses another is refused by name, before anything is
written: an export either gives what the run gives, or is not made.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from clearhead.errors import InputError
from clearhead.interop.export.folder import appearing_whole, refuse_folder
from clearhead.run import Run

Format = Literal["transformers", "ctranslate2", "onnx", "numpy"]
Quantization = Literal["int8", "int16", "float16", "bfloat16"]
FORMATS: tuple[Format, ...] = get_args(Format)
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)


@dataclass(frozen=True)
class Exported:
    """What was written, and a word on how it is used."""

    folder: Path
    files: list[str]
    usage: str


def export(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    to: Format,
    checkpoint: str = "best",
    quantization: Quantization | None = None,  # of CTranslate2: smaller weights, for a small loss in exactness
    force: bool = False,  # replace what an earlier export wrote there
) -> Exported:
    """Write the model of a run into a folder in another program's format; the folder appears whole or not at all."""
    if to not in FORMATS:
        raise InputError(f"--to {to}: not one of {', '.join(FORMATS)}")
    if quantization is not None and to != "ctranslate2":
        raise InputError(f"--quantization {quantization} is for --to ctranslate2, not for --to {to}")
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization {quantization}: not one of {', '.join(QUANTIZATIONS)}")
    source, target = Run(run), Path(folder)
    refuse_folder(target, force, source.path)
    # each writes into a folder and says how that, called DIR, is used
    write: Callable[..., str] = import_module(f"{__name__}.to_{to}").write
    options = {} if quantization is None else {"quantization": quantization}
    with appearing_whole(target, force) as temporary:
        usage = write(source, checkpoint, temporary, **options)
        files = sorted(path.relative_to(temporary).as_posix() for path in temporary.rglob("*") if path.is_file())
    return Exported(target, files, usage.replace("DIR", str(target)))
