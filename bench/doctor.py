"""How good is the doctor: the planted bugs it finds and names, what it says about healthy models, and its peers.

`make bench-doctor` runs everything (some ten minutes on one core) and prints the tables of docs/doctor.md
and docs/benchmarks.md. Results are kept in runs/bench/doctor.json as they come, so that a run can go on:
`python -m bench.doctor --only decoder` examines one host, `--only zoo` the healthy models, and `--resume` keeps what is
there. The peers have a file of their own, doctor_peers.py.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from clearhead.doctor.causes import Facts, known
from clearhead.doctor.describe import Description
from clearhead.doctor.examine import check
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.mutants import HOSTS, Mutant, load, table
from clearhead.doctor.mutants.benign import BENIGN
from clearhead.doctor.probes import PROBES, SLOW
from clearhead.doctor.ranking import Case, from_json, named, observe, stored
from clearhead.machine import machine

# what is kept from the ranking while it is asked about a bug; a bug's cause is its kind
LEFT_OUT: dict[str, Callable[[Case, Case], bool]] = {
    "nothing": lambda other, case: False,
    "the bug itself": lambda other, case: other.bug == case.bug,
    "every bug of its host": lambda other, case: other.host == case.host,
    "every bug of its kind, in its host": lambda other, case: (
        other.host == case.host and bool(set(other.causes) & set(case.causes))
    ),
    "every bug of its host, and every bug of its kind": lambda other, case: (
        other.host == case.host or bool(set(other.causes) & set(case.causes))
    ),
}
RESULTS = Path("runs") / "bench" / "doctor.json"


def examined(spec: Description, quick: bool = False) -> dict[str, Any]:
    """The findings, the first three causes and the times of one examination, and what the ranking can learn from it."""
    start = time.perf_counter()
    report = check(spec, quick=quick)
    facts = Facts(report.findings)
    case = observe(report.findings, report.passed, {cause.id: fits(facts) for cause, fits, _ in known()})
    return {
        "case": case.to_json(),
        "findings": [(finding.id, finding.severity) for finding in report.findings],
        "causes": [cause.id for cause in report.causes[:3]],
        "seconds": time.perf_counter() - start,
        "quick_seconds": sum(seconds for name, seconds in report.seconds.items() if name not in SLOW),
        "not_armed": list(report.not_armed),
    }


def run_host(host: str, results: dict[str, Any]) -> None:
    """Every planted bug of one host, and the healthy host in each variant it is examined under."""
    for mutant in table().values():
        if mutant.host != host or f"mutant/{mutant.id}" in results:
            continue
        healthy = f"healthy/{host}/{mutant.variant}"
        if healthy not in results:
            results[healthy] = examined(describe(host, mutant.variant))
        spec = describe(host, mutant.variant, load(mutant))
        results[f"mutant/{mutant.id}"] = examined(spec, quick=True)
        # what the quick set misses, or only has a warning for, the slow probes may find
        if not any(severity == "error" for _, severity in results[f"mutant/{mutant.id}"]["findings"]):
            results[f"mutant/{mutant.id}"] = examined(spec)
        say(mutant.id, results[f"mutant/{mutant.id}"])
        save(results)


def say(name: str, result: dict[str, Any]) -> None:
    print(f"{name:<34}{result['seconds']:6.1f} s  {result['causes']}", file=sys.stderr, flush=True)


def save(results: dict[str, Any]) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def benign(row: Mutant) -> Description:
    return replace(describe(row.host, row.variant, load(row)), reference=None)


def in_precision(host: str, variant: str, dtype: torch.dtype) -> Description:
    return replace(describe(host, variant), dtype=dtype)


def run_zoo(results: dict[str, Any]) -> None:
    """Healthy models of other people, our own, and changes that are no bugs."""
    from tests.doctor.zoo import ZOO

    models: dict[str, Callable[[], Description]] = dict(ZOO)
    for row in BENIGN:
        models[row.title] = partial(benign, row)
    for host in HOSTS[:3]:
        for dtype in (torch.float32, torch.bfloat16):
            variant = {"decoder": "rotary", "encoder": "plain", "seq2seq": "plain"}[host]
            name = f"host {host}, {str(dtype)[6:]}"
            models[name] = partial(in_precision, host, variant, dtype)
    for name, make in models.items():
        if f"zoo/{name}" in results:
            continue
        results[f"zoo/{name}"] = examined(make())
        say(name, results[f"zoo/{name}"])
        save(results)


def found(mutant: Mutant, results: dict[str, Any]) -> list[str]:
    """The findings that count: errors, and warnings that the healthy host does not get."""
    usual = {id for id, _ in results[f"healthy/{mutant.host}/{mutant.variant}"]["findings"]}
    findings = results[f"mutant/{mutant.id}"]["findings"]
    return [id for id, severity in findings if severity == "error" or (severity == "warning" and id not in usual)]


def learn(results: dict[str, Any]) -> None:
    """Keep what came of every planted bug for the ranking of causes; of those not examined now, what came of them."""
    earlier, cases = {case.bug: case for case in stored()}, []
    for mutant in table().values():
        result = results.get(f"mutant/{mutant.id}")
        case = from_json(result["case"]) if result else earlier.get(mutant.id)
        if case is not None and case.found:
            cases.append(replace(case, causes=mutant.causes, host=mutant.host, bug=mutant.id).to_json() + "\n")
    Path("clearhead/doctor/evidence.jsonl").write_text("".join(cases), encoding="utf-8")


def ranking() -> str:
    """How often a true cause is among the first three, and how often if what is like it was left out while learning."""
    explains, cases = {cause.id: explained for cause, _, explained in known()}, stored()
    lines = ["| left out while learning | bugs | named among the first three causes |", "|---|---:|---:|"]
    for what, left_out in LEFT_OUT.items():
        count = named(cases, left_out, explains)
        lines.append(f"| {what} | {len(cases)} | {count} ({count / len(cases):.1%}) |")
    return "\n".join(lines)


def rates(results: dict[str, Any]) -> str:
    """Found and named, on the bugs that were known while the probes were written and on those kept aside."""
    lines = ["| planted bugs | number | found | named among the first three causes |", "|---|---:|---:|---:|"]
    everything = [mutant for mutant in table().values() if f"mutant/{mutant.id}" in results]
    # hosts and bugs written after the probes, without looking at them: four times three
    blind, later = ("sequence_first", "functional", "by_id"), ("fused", "pairs", "unified")
    third, fourth = ("relative", "parallel", "folded"), ("capped", "shifted", "unpadded")
    at_home = [m for m in everything if m.host not in (*blind, *later, *third, *fourth)]
    groups = {
        "from the catalogue": [m for m in at_home if m.id[0] not in "xyz"],
        "further ones": [m for m in at_home if m.id[0] in "xyz"],
        "written blind, on three other hosts": [m for m in everything if m.host in blind],
        "written blind once more, on three others": [m for m in everything if m.host in later],
        "written blind a third time, on three others": [m for m in everything if m.host in third],
        "written blind a fourth time, on three others": [m for m in everything if m.host in fourth],
        "all": everything,
    }
    for name, group in groups.items():
        if not group:
            continue
        hits = [m for m in group if found(m, results)]
        named = [m for m in hits if set(m.causes) & set(results[f"mutant/{m.id}"]["causes"])]
        share = f"{len(hits)} ({len(hits) / len(group):.1%})", f"{len(named)} ({len(named) / len(group):.1%})"
        lines.append(f"| {name} | {len(group)} | {share[0]} | {share[1]} |")
    return "\n".join(lines)


def matrix(results: dict[str, Any]) -> str:
    """Which probe finds which bug: ● an error, ○ a warning the healthy host does not get."""
    names = [name for name in PROBES if any(hits(m, name, results) for m in table().values())]
    lines = ["| bug | " + " | ".join(names) + " | named |", "|---|" + ":-:|" * (len(names) + 1)]
    for mutant in table().values():
        if f"mutant/{mutant.id}" not in results:
            continue
        cells = [hits(mutant, name, results) for name in names]
        named = "✓" if set(mutant.causes) & set(results[f"mutant/{mutant.id}"]["causes"]) else ""
        lines.append(f"| **{mutant.id}** {mutant.title} | " + " | ".join(cells) + f" | {named} |")
    return "\n".join(lines)


def hits(mutant: Mutant, probe: str, results: dict[str, Any]) -> str:
    if f"mutant/{mutant.id}" not in results:
        return ""
    counted = {id for id in found(mutant, results) if id.split(".")[0] == probe}
    severities = {severity for id, severity in results[f"mutant/{mutant.id}"]["findings"] if id in counted}
    return "●" if "error" in severities else "○" if severities else ""


def zoo_table(results: dict[str, Any]) -> str:
    lines = ["| healthy model | armed | errors | warnings | all probes | quick set |", "|---|---:|---:|---|---:|---:|"]
    for name, result in results.items():
        kind, _, title = name.partition("/")
        if kind not in ("zoo", "healthy"):
            continue
        errors = [id for id, severity in result["findings"] if severity == "error"]
        warned = ", ".join(f"`{id}`" for id, severity in result["findings"] if severity == "warning")
        armed = len(PROBES) - len(result["not_armed"])
        times = f"{result['seconds']:.1f} s | {result['quick_seconds']:.1f} s"
        lines.append(f"| {title} | {armed} | {len(errors)} | {warned} | {times} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=[*HOSTS, "zoo", "tables", "ranking"], help="a part instead of everything")
    parser.add_argument("--resume", action="store_true", help="keep the results of an earlier run")
    parser.add_argument(
        "--learn", action="store_true", help="keep what the planted bugs teach for the ranking of causes"
    )
    options = parser.parse_args()
    wanted = options.only
    warnings.simplefilter("ignore")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() and options.resume else {}
    for host in HOSTS:
        if wanted in (None, host):
            run_host(host, results)
    if wanted in (None, "zoo"):
        run_zoo(results)
    if options.learn:
        learn(results)
    print(f"\n{machine()}\n")
    if wanted in (None, "ranking"):
        print(ranking(), end="\n\n")
    for part in (rates(results), matrix(results), zoo_table(results)):
        print(part, end="\n\n")


if __name__ == "__main__":
    main()
