"""The inferred description as code: what is printed is what was run, so that it can be kept and corrected."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from clearhead.doctor.infer.builder import Built
from clearhead.doctor.infer.load import Loaded
from clearhead.doctor.infer.masks import helpers
from clearhead.doctor.infer.reading import Reading

ORDER = ("name", "build", "forward", "pad", "cached", "generate", "loss", "optimizer")


@dataclass
class Draft:
    """Everything that goes into the code of a description."""

    name: str
    loaded: Loaded
    built: Built
    reading: Reading
    fields: dict[str, str] = field(default_factory=dict)  # further fields of the description, as code
    functions: list[str] = field(default_factory=list)  # the functions those fields name


def forward(reading: Reading) -> str:
    """The forward of a description: masks given where the doctor gives them."""
    calling, padding = reading.calling, reading.padding
    reals = calling.reals if reading.needs_real else [real for real in calling.reals if real in padding]
    if "target_real" in reals and "source_real" not in reals:
        reals = []  # a target's mask alone has no place in a description
    signature = ", ".join(["model", *calling.variables, *(f"{real}=None" for real in reals)])
    lines = [f"def forward({signature}):", *(f"    {line}" for line in calling.before())]
    if reading.needs_real:
        for variable, real in zip(calling.variables, calling.reals, strict=True):
            lines.append(f"    {real} = all_real({variable}) if {real} is None else {real}")
        return "\n".join([*lines, f"    return {calling.code()}"])
    by_name = {name: real for real in reals for name in padding[real] if name}
    if by_name:
        lines.append("    masks = {}")
    for real in reals:
        lines.append(f"    if {real} is not None:")
        for name, code in padding[real].items():
            lines.append(f'        masks["{name}"] = {code}' if name else f"        {code}")
    return "\n".join([*lines, f"    return {calling.code(rest=', **masks' if by_name else '')}"])


def imports(draft: Draft, folder: Path) -> list[str]:
    """How the code gets the user's names, seen from the folder it is written to."""
    loaded, used = draft.loaded, list(dict.fromkeys(name.split(".")[0] for name in draft.built.plan.used))
    if loaded.file is None:
        return [f"from {loaded.module.__name__} import {', '.join(used)}"]
    path = os.path.relpath(loaded.file, folder)
    lines = [f'theirs = doctor.import_file(Path(__file__).parent / "{Path(path).as_posix()}")']
    return [*lines, *(f"{name} = theirs.{name}" for name in used)]


def folded(code: str) -> str:
    """Calls too long for a line, one argument a line."""
    lines = []
    for line in code.splitlines():
        start = re.match(r" *(return |\w+ = )?", line)
        indent = len(line) - len(line.lstrip())
        head = start.group() if start is not None else ""
        lines.append(head + opened(line[len(head) :], indent))
    return "\n".join(lines)


def opened(text: str, indent: int) -> str:
    """An expression over several lines, if it is long and begins with a call or a bracket."""
    first = re.match(r"[\w.]*[(\[{]", text)
    if len(text) + indent <= 100 or first is None:
        return text
    depth, end = 0, 0
    for end, letter in enumerate(text):  # noqa: B007
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in ")]}":
            break
    space = " " * indent
    parts = arguments(text[first.end() : end])
    inner = [f"{space}    {keyword(part, indent + 4)}," for part in parts]
    return "\n".join([first.group(), *inner, f"{space}{text[end:]}"])


def keyword(part: str, indent: int) -> str:
    """An argument, opened behind its name."""
    name = re.match(r"(\w+=)?", part)
    head = name.group() if name is not None else ""
    return head + opened(part[len(head) :], indent)


def arguments(text: str) -> list[str]:
    """What stands between the outermost commas."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def source(draft: Draft, folder: Path) -> str:
    """The whole description as a module that lies in `folder`."""
    fields = {"name": repr(draft.name), "build": "build", "forward": "forward", **draft.fields}
    functions = [folded(code) for code in (draft.built.code, forward(draft.reading), *draft.functions)]
    body = "\n\n\n".join([*helpers("\n".join(functions)), *functions])
    known = [f"    {name}={fields[name]}," for name in (*ORDER, *(set(fields) - set(ORDER))) if name in fields]
    spec = "\n".join([f"spec = doctor.{draft.reading.kind}(", *known, ")"])
    text = f"{body}\n{spec}"
    standard = [
        line
        for line, word in (
            ("import copy", "copy.deepcopy"),
            ("from pathlib import Path", "Path(" if draft.loaded.file is not None else "\0"),
            ("from types import SimpleNamespace", "SimpleNamespace("),
        )
        if word in text or word == "Path("
    ]
    third = [line for line, word in (("import torch", "torch."), ("from torch import nn", "nn.")) if word in text]
    head = f'"""{draft.name} for `clearhead doctor`, inferred by trying: correct what is wrong, keep what is right."""'
    comments = [f"# assumed: {line}" for line in draft.reading.assumed if not line.startswith("sizes")]
    blocks = [head, "\n".join(standard), "\n".join([*third, "", "from clearhead import doctor"]).strip()]
    return "\n\n".join([*(block for block in blocks if block), "\n".join(imports(draft, folder))]) + (
        f"\n\n\n{body}\n\n\n" + "\n".join([*comments, spec]) + "\n"
    )
