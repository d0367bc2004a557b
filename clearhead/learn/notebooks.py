"""The course as Jupyter notebooks: one an exercise, with the same text, stubs, hints and checks.

Later notebooks use our own version of what earlier ones had you write, so that each stands alone.
"""

import json
from pathlib import Path
from typing import Any

from clearhead.disk import make_folder, write_whole
from clearhead.errors import InputError
from clearhead.learn.exercise import Exercise
from clearhead.learn.exercises import course, file_names
from clearhead.learn.source import earlier, write_file


def markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def code(text: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    return {**row, "source": text.splitlines(keepends=True)}


def notebook(exercise: Exercise) -> dict[str, Any]:
    """One exercise as a notebook."""
    number = list(course()).index(exercise.name) + 1
    stub = write_file(exercise, course(), file_names(), solved=False).partition('"""\n')[2].strip()
    for other in earlier(exercise, course()):  # a notebook has no other files beside it
        module = file_names()[other].removesuffix(".py")
        stub = stub.replace(f"from {module} import", f"from clearhead.{exercise.source} import")
    shapes = "\n".join(f"    {line.strip()}" for line in exercise.shapes.strip().splitlines())
    hints = "\n".join(
        f"<details><summary>hint {place} of 3</summary>\n\n{hint}\n\n</details>\n"
        for place, hint in enumerate(exercise.hints, 1)
    )
    parts = ", ".join(f"{part}={part}" for part in exercise.parts)
    cells = [
        markdown(
            f"# {number}. {exercise.name}: {exercise.question}\n\n{exercise.about}\n\nIn the paper: {exercise.section}."
        ),
        markdown(f"{shapes}\n\nYou may use {exercise.allowed}. Write {', then '.join(exercise.parts)}."),
        code(stub),
        code(f'from clearhead import learn\n\nlearn.check("{exercise.name}", {parts})'),
        markdown(hints),
        markdown(
            f"After passing: {exercise.after}\n\nOurs: `{exercise.ours}`. "
            f"The claim is tested by `clearhead lab run {exercise.lab}`."
        ),
    ]
    for place, cell in enumerate(cells):
        cell["id"] = f"{exercise.name}-{place}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def write_notebooks(folder: Path, force: bool = False) -> list[Path]:
    """All notebooks into a folder; others that are there stay, unless forced. What is there as it would be written is
    what an export that was interrupted has left."""
    contents = {
        folder / file_names()[name].replace(".py", ".ipynb"): (
            json.dumps(notebook(exercise), indent=1, ensure_ascii=False) + "\n"
        )
        for name, exercise in course().items()
    }
    for path, content in contents.items():
        if not force and path.exists() and not (path.is_file() and path.read_bytes() == content.encode()):
            raise InputError(f"{path} is already there: choose another folder, or replace it with --force")
    make_folder(folder)
    for path, content in contents.items():
        write_whole(path, content)
    return list(contents)
