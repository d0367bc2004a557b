"""The page's modules as one script: what the server sends, because forty requests take longer than one, and what the
single file carries. Nothing is translated: each module stands as it is, in a function of its own, after those that it
imports from.
"""

import re
from importlib.resources import files

PAGE = files("clearhead.explore") / "page"
IMPORT = re.compile(r'^import \{\s+([\w,\s]+?),?\s+\} from "\./([a-z0-9_]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (async function|function|class|const) (\w+)", re.MULTILINE)


def bundle(start: str = "main") -> str:
    """One script that does what the module `start` does."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules of the page import each other in a circle: {' → '.join((*above, name))}")
        for _, other in IMPORT.findall(source(name)):
            visit(other, (*above, name))
        if name not in order:
            order.append(name)

    visit(start, ())
    return "\n".join(wrapped(name, last=name == start) for name in order)


def source(name: str) -> str:
    return (PAGE / f"{name}.js").read_text(encoding="utf-8")


def wrapped(name: str, last: bool) -> str:
    """One module: its imports become constants, its exports what its function returns."""
    text = IMPORT.sub(lambda found: f"const {{ {found[1]} }} = module_{found[2]};\n", source(name))
    exported = [found[1] for found in EXPORT.findall(text)]
    text = EXPORT.sub(r"\1 \2", text)
    wrong = re.search(r"^\s*(import|export)\b.*", text, re.MULTILINE)
    if wrong or "</script" in text.lower() or "import(" in text:
        raise ValueError(f"page/{name}.js cannot be put into one file: {wrong[0] if wrong else '</script or import('}")
    if last:
        return text
    return f"const module_{name} = (() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();\n"
