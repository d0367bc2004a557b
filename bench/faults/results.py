"""What is known of each fault, kept in a file: an interrupted run goes on where it was.

A result holds for the code it was found with: the package, and the modules of the harness that the class is made of.
When either changes, it is tried again. What did not survive is tried again in any case.
"""

import hashlib
import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from bench.faults.outcome import Outcome, Trial
from clearhead.machine import machine

FILE = Path("runs/bench/faults/results.jsonl")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- bench.faults --report writes this -->", "<!-- to here -->"


@cache
def code(name: str) -> str:
    """A digest of the package and of all that the class of this name is made of."""
    needed, waiting = set[str](), {name}
    while waiting:
        module = waiting.pop()
        needed.add(module)
        waiting |= set(re.findall(r"bench\.faults\.(\w+)", text_of(module))) - needed
    files = [*(ROOT / "clearhead").rglob("*"), *(ROOT / "bench/faults" / f"{module}.py" for module in needed)]
    content = hashlib.sha256()
    for path in sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts):
        content.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return content.hexdigest()[:12]


def text_of(module: str) -> str:
    """Its source, without the words about it."""
    path = ROOT / "bench" / "faults" / f"{module}.py"
    return re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL) if path.is_file() else ""


def commit() -> str:
    """Of the repository as it stands; with a mark if the code differs from it."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or "an unknown commit"


def known(name: str) -> dict[str, dict[str, Any]]:
    """The results of a class that hold for the code as it stands, by case; under "" whether it was gone through."""
    found: dict[str, dict[str, Any]] = {}
    for line in FILE.read_text().splitlines() if FILE.is_file() else []:
        try:
            one = json.loads(line)
        except ValueError:  # cut off when a run was interrupted
            continue
        if one["class"] == name and one["code"] == code(name):
            found[f"{one['family']}: {one['case']}" if "case" in one else ""] = one
    return found


def go_on(name: str, trials: Iterable[Trial], seconds: float) -> None:
    """Try what is not known to be survived, until the time is up."""
    done, limit = known(name), time.monotonic() + seconds
    FILE.parent.mkdir(parents=True, exist_ok=True)
    count, tried = 0, 0
    with FILE.open("a", buffering=1) as file:

        def keep(**what: object) -> None:
            file.write(json.dumps({"class": name, "code": code(name), "commit": commit_now, **what}) + "\n")

        commit_now = commit()
        for trial in trials:
            count += 1
            if done.get(f"{trial.family}: {trial.case}", {"wrong": "not tried"})["wrong"]:
                if time.monotonic() > limit:
                    print(f"{name}: the time is up after {tried:,}; to be gone on with", flush=True)
                    return
                outcome = trial.outcome()
                tried += 1
                keep(**asdict(outcome))
                if outcome.wrong:
                    print(f"{outcome.family}: {outcome.case}: {outcome.wrong}", flush=True)
        keep(whole=count)
    print(f"{name}: all {count:,} done, {tried:,} of them now", flush=True)


def report(classes: Iterable[str]) -> tuple[str, bool]:
    """The table of docs/reliability.md; and whether every class is whole and everything survived."""
    tried, survived, commits, missing = Counter[str](), Counter[str](), set[str](), list[str]()
    for name in classes:
        results = known(name)
        whole = results.pop("", None)
        for one in results.values():
            tried[one["family"]] += 1
            survived[one["family"]] += not one["wrong"]
            commits.add(one["commit"])
        if whole is None or whole["whole"] != len(results):
            missing.append(f"{name} ({len(results):,} so far)")
    rows = [f"| {family} | {count:,} | {survived[family]:,} |" for family, count in tried.items()]
    rows.append(f"| all | {tried.total():,} | {survived.total():,} |")
    told = f"`make bench-faults` at {', '.join(sorted(commits)) or 'no commit'} ({machine()})."
    if missing:
        told += f" **Not gone through to the end**: {', '.join(missing)}."
    lines = [told, "", "| fault | tried | survived |", "|---|---:|---:|", *rows]
    return "\n".join(lines), not missing and tried.total() == survived.total()


def write(table: str) -> None:
    """Put the table into the page."""
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f"{text[:start]}\n{table}\n{text[end:]}")


def failures(name: str) -> list[Outcome]:
    """What is known not to have survived."""
    return [
        Outcome(one["family"], one["case"], one["wrong"]) for key, one in known(name).items() if key and one["wrong"]
    ]
