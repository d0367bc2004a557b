"""The tables of docs/doctor.md about the wild zoo."""

import fnmatch
from typing import Any


def code_bases(results: dict[str, dict[str, Any]]) -> str:
    """All descriptions: how much could be asked, what was found, and how long it took."""
    lines = ["| code base | commit | armed | errors | false | warnings | CPU |", "|---|---|---:|---:|---:|---:|---:|"]
    for name, result in results.items():
        if "unusable" in result:
            lines.append(f"| {name} | `{result['commit'][:7]}` | refused | | {len(result['false'])} | | |")
            continue
        kinds = [finding["severity"] for finding in result["findings"]]
        armed = len(result["passed"]) + len({finding["id"].split(".")[0] for finding in result["findings"]})
        lines.append(
            f"| {name} | `{result['commit'][:7]}` | {armed} | {kinds.count('error')} | {len(result['false'])} | "
            f"{kinds.count('warning')} | {result['seconds']:.0f} s |"
        )
    return "\n".join(lines)


def found_in_the_wild(results: dict[str, dict[str, Any]], truths: list[dict[str, Any]]) -> str:
    """Every true finding that was reported, with the doctor's own counterexample."""
    lines = ["| repository | commit | where | what is wrong | what the doctor shows |", "|---|---|---|---|---|"]
    for truth in truths:
        result = results.get(truth["description"])
        if result is None:
            continue
        shown = [f for f in result.get("findings", []) if any(fnmatch.fnmatch(f["id"], p) for p in truth["findings"])]
        refusal = "unusable" in truth["findings"] and result.get("unusable")
        counterexample = f"`{shown[0]['id']}`: {shown[0]['message']}" if shown else refusal or "missed"
        repository = truth["description"].split("#")[0]
        lines.append(
            f"| {repository} | `{result['commit'][:7]}` | `{truth['where']}` | {truth['what']} | {counterexample} |"
        )
    return "\n".join(lines)
