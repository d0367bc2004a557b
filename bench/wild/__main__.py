"""The doctor in the wild: `make bench-wild REPOS=folder`, where the folder holds clones (owner+name, or name).

Each description runs in a process of its own, so that code that hangs or dies takes nothing with it. An error is true
if truth.toml says so, with file, line and reason; any other error is false and fails the benchmark, as does a
description that cannot be used. True findings that are no longer reported are listed, too.
"""

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from pathlib import Path
from typing import Any

from bench.wild.clone import Clone
from bench.wild.tables import code_bases, found_in_the_wild
from bench.wild.zoo import WILD

RESULTS = Path("runs") / "bench" / "wild.json"
TRUTH = Path(__file__).with_name("truth.toml")


def clone_of(repository: str, folder: Path) -> Clone | None:
    names = (repository.replace("/", "+"), repository.split("/")[1])
    return next((Clone(folder / name) for name in names if (folder / name).is_dir()), None)


def examine(name: str, folder: Path, quick: bool) -> dict[str, Any]:
    """Inside the child: build the description and examine it."""
    from clearhead import doctor
    from clearhead.errors import InputError

    warnings.simplefilter("ignore")
    clone = clone_of(WILD[name].repository, folder)
    assert clone is not None
    start = time.process_time()
    try:
        report = doctor.check(WILD[name].describe(clone), quick=quick)
    except InputError as error:
        return {"unusable": str(error)}
    return {
        **report.to_json(),
        "text": str(report),
        "seconds": time.process_time() - start,
        "slowest": sorted(report.seconds.items(), key=lambda item: -item[1])[:3],
    }


def in_child(name: str, folder: Path, quick: bool, timeout: float) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "bench.wild", "--child", name, "--into", file.name, "--repos", str(folder)]
        try:
            done = subprocess.run(
                [*command, *(["--quick"] if quick else [])],
                timeout=timeout,
                capture_output=True,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"unusable": f"not done after {timeout:.0f} s"}
        written = Path(file.name).read_text()
        if not written:
            return {"unusable": "\n".join(done.stderr.strip().splitlines()[-12:])}
        return json.loads(written)


def judge(name: str, result: dict[str, Any], truths: list[dict[str, Any]]) -> None:
    """Enter which findings are true, which are false errors, and which true ones are missing."""
    mine = [truth for truth in truths if truth["description"] == name]
    findings = result.get("findings", [])
    if "unusable" in result:
        result["false"] = [] if any(matches("unusable", truth) for truth in mine) else ["unusable"]
        result["missed"] = []
        return
    result["false"] = [
        finding["id"]
        for finding in findings
        if finding["severity"] == "error" and not any(matches(finding["id"], truth) for truth in mine)
    ]
    result["missed"] = [
        f"{truth['where']}: {truth['what']}"
        for truth in mine
        if not any(matches(finding["id"], truth) for finding in findings)
    ]


def matches(id: str, truth: dict[str, Any]) -> bool:
    return any(fnmatch.fnmatch(id, pattern) for pattern in truth["findings"])


def said(name: str, result: dict[str, Any]) -> str:
    """One code base in a few lines."""
    if "unusable" in result:
        return f"{name}  UNUSABLE: {result['unusable']}"
    by = {kind: [f["id"] for f in result["findings"] if f["severity"] == kind] for kind in ("error", "warning")}
    armed = len(result["passed"]) + len({f["id"].split(".")[0] for f in result["findings"]})
    lines = [f"{name}  {result['commit'][:12]}  {armed} armed  {result['seconds']:.1f} s"]
    lines += [f"  {'FALSE' if id in result['false'] else 'true '} error  {id}" for id in by["error"]]
    lines += [f"  warning      {id}" for id in by["warning"]]
    lines += [f"  missed       {what}" for what in result["missed"]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repos", default=os.environ.get("REPOS"), help="the folder of the clones")
    parser.add_argument("--only", default="*", help="descriptions by pattern, for example '*GPT*'")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--resume", action="store_true", help="keep the results of an earlier run")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--text", action="store_true", help="print whole reports")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--into", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.repos:
        parser.error("name the folder of the clones: make bench-wild REPOS=folder")
    folder = Path(options.repos).resolve()
    if options.child:
        with Path(options.into).open("w") as file:
            json.dump(examine(options.child, folder, options.quick), file)
        return 0
    truths = tomllib.loads(TRUTH.read_text())["true"]
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if options.resume and RESULTS.exists() else {}
    for name, entry in WILD.items():
        if not fnmatch.fnmatch(name, options.only) or name in results:
            continue
        clone = clone_of(entry.repository, folder)
        if clone is None:
            print(f"{name}  no clone of {entry.repository} in {folder}")
            continue
        result = {"commit": clone.commit, **in_child(name, folder, options.quick, options.timeout)}
        judge(name, result, truths)
        results[name] = result
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(result["text"] if options.text and "text" in result else said(name, result), flush=True)
    print(f"\n{code_bases(results)}\n\n{found_in_the_wild(results, truths)}\n")
    bad = [name for name, result in results.items() if result["false"]]
    print(f"{len(results)} descriptions, {sum(len(r['false']) for r in results.values())} false errors")
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
