"""torchtest2, torch-audit and pytest-torch on the doctor's planted bugs and on its zoo.

Each gets what its interface takes: the model behind a wrapper with the usual names (input_ids, attention_mask), the
same loss and optimizer that the description offers, a reference model where there is one, the cache as a stream.
*Found* is counted as for the doctor: a failure, or a warning that the healthy host does not get. A failure on a
healthy model is a false alarm. None is a dependency of Clearhead; install them into a folder of their own:

    pip install --target peers --no-deps torchtest2 torch-audit pytest-torch
    python -m bench.doctor_peers peers                                   # every planted bug, and the healthy zoo
    python -m bench.doctor_peers peers --only functional --only by_id    # the bugs of these hosts
    python -m bench.doctor_peers peers --only fused --every 5            # each fifth of them: an overfit test is slow
    python -m bench.doctor_peers peers --repos clones                    # other people's code as it is (bench/wild)

In the wild there is no healthy host to compare with: a code base with a known fault (bench/wild/truth.toml) counts as
found if a tool fails it or warns for whatever reason, and one without as called ill if a tool fails it.
"""

import argparse
import json
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.wild.__main__ import TRUTH, clone_of
from bench.wild.zoo import WILD
from clearhead.doctor.describe import CausalLM, Description, Encoder, EncoderDecoder
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.mutants import HOSTS, Mutant, load, table
from clearhead.doctor.subject import Subject, outputs, parameters_of

RESULTS = Path("runs") / "bench" / "doctor_peers.json"


class Wrapped(nn.Module):
    """A described model with the argument names and the {logits, loss} output that these tools know."""

    def __init__(self, spec: Description, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.__dict__["spec"] = spec

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, target: Tensor | None = None
    ) -> dict[str, Tensor]:
        spec = self.__dict__["spec"]
        given = (input_ids,) if target is None else (input_ids, target)
        takes_a_mask = parameters_of(spec.forward) > len(given) + 1
        extra = (attention_mask.bool(),) if attention_mask is not None and takes_a_mask else ()
        result = {"logits": outputs(spec.forward(self.model, *given, *extra)).float()}
        if spec.loss is not None:
            labels = (input_ids.flip(1),) if isinstance(spec, Encoder) else ()
            result["loss"] = spec.loss(self.model, *given, *labels)
        return result


def inputs_for(subject: Subject) -> dict[str, Tensor]:
    """One batch with rows of different lengths."""
    source = subject.tokens(4, 11, seed=3)
    mask = torch.ones_like(source)
    if subject.views[-1].padded:
        for row, count in ((1, 3), (2, 5)):
            mask[row, -count:] = 0
            source[row, -count:] = subject.source_pad or 0
    batch = {"input_ids": source, "attention_mask": mask}
    if isinstance(subject.spec, EncoderDecoder):
        batch["target"] = subject.tokens(4, 7, seed=4)
    return batch


def loss_of(result: Any) -> Tensor:
    return result["loss"] if "loss" in result else result["logits"].float().pow(2).mean()


def prepared(spec: Description) -> tuple[Subject, Callable[[], Wrapped], dict[str, Tensor]]:
    subject = Subject(spec)
    return subject, lambda: Wrapped(spec, subject.raw(dtype=torch.float32)), inputs_for(subject)


def with_torchtest2(spec: Description) -> dict[str, str]:
    import torchtest2

    _, make, batch = prepared(spec)
    model = make()
    optimizer = spec.optimizer(model.model) if spec.optimizer is not None else None
    report = torchtest2.check_model(model, batch, optimizer=optimizer, overfit_ratio=0.3)
    told = {result.name: "failure" for result in report.failures}
    return told | {result.name: "warning" for result in report.warnings}


def with_torch_audit(spec: Description) -> dict[str, str]:
    import torch_audit

    _, make, batch = prepared(spec)
    model = make().train()
    optimizer = spec.optimizer(model.model) if spec.optimizer is not None else torch.optim.AdamW(model.parameters())
    with torch_audit.audit_dynamic(model, optimizer=optimizer, every_n_steps=1, reporters=[]) as auditor:
        auditor.audit_static()
        auditor.audit_init()
        for _ in range(3):
            optimizer.zero_grad()
            auditor.backward(loss_of(auditor.forward(**batch)))
            auditor.optimizer_step()
    found = auditor.finish(report=False).findings
    severity = {"WARN": "warning", "ERROR": "failure", "FATAL": "failure"}
    return {f.rule_id: severity[f.severity.value] for f in found if f.severity.value in severity}


def pytest_torch_checks(spec: Description) -> Iterator[tuple[str, Callable[[], object]]]:
    import pytest_torch as peer

    subject, make, batch = prepared(spec)
    model = make().eval()

    def select(result: Any) -> Tensor:
        return result["logits"]

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, **given: Tensor) -> Tensor:
            return self.inner(**given)["logits"]

    logits = Logits().eval()
    yield "contract", lambda: peer.check_inference_contract(logits, batch)
    yield (
        "checkpoint",
        lambda: peer.assert_checkpoint_roundtrip(
            lambda: make().model, tuple(batch[name] for name in ("input_ids", "target") if name in batch)
        ),
    )
    yield "gradients", lambda: peer.assert_gradients_finite(make(), batch, loss_of)
    yield "all parameters", lambda: peer.assert_all_params_receive_grad(make(), batch, loss_of)
    if subject.views[-1].padded:
        blank = {**batch, "attention_mask": batch["attention_mask"].clone()}
        blank["attention_mask"][3] = 0
        yield "mask", lambda: peer.assert_mask_invariant(logits, batch, vocab_size=subject.vocab)
        yield "padding", lambda: peer.assert_padding_invariant(logits, batch)
        yield "padded row", lambda: peer.assert_gradients_finite(make(), blank, lambda r: r["logits"][:3].pow(2).mean())
    if spec.loss is not None:
        yield "overfit", lambda: peer.assert_overfits_one_batch(make(), batch, loss_of, max_final_ratio=0.3)
    if spec.optimizer is not None:
        fresh = make().model
        optimizer = spec.optimizer(fresh)
        yield "optimizer", lambda: peer.assert_optimizer_coverage(fresh, optimizer)
    if spec.reference is not None:
        known = spec.reference()
        candidate = subject.construct(0, {**subject.sizes, **known.sizes}).to(known.output.dtype).eval()
        candidate.load_state_dict(dict(known.weights), strict=False)
        yield "reference", lambda: peer.assert_matches_reference(candidate, known.output, known.inputs)
    if isinstance(spec, CausalLM) and spec.cached is not None:
        cached, shaken = spec.cached, subject.model()
        yield (
            "streaming",
            lambda: peer.assert_streaming_equivalent(
                lambda tokens: outputs(spec.forward(shaken, tokens)),
                lambda tokens, state: cached(shaken, tokens, state),
                subject.tokens(2, 11),
                chunk_sizes=(1, 3),
                init_state=lambda: None,
            ),
        )


def with_pytest_torch(spec: Description) -> dict[str, str]:
    told = {}
    for name, work in pytest_torch_checks(spec):
        try:
            work()
        except AssertionError:
            told[name] = "failure"
        except Exception:
            told[name] = "raised"  # counts where the same check runs on the healthy host, and is no alarm there
    return told


TOOLS = {"torchtest2": with_torchtest2, "torch-audit": with_torch_audit, "pytest-torch": with_pytest_torch}


def ask(tool: str, spec: Description) -> dict[str, str]:
    """What a tool says; that it cannot run at all is no finding."""
    torch.manual_seed(0)
    try:
        return TOOLS[tool](spec)
    except Exception as error:
        print(f"  {tool}: {type(error).__name__}: {str(error)[:120]}", file=sys.stderr)
        return {"raised": "not applicable"}


def planted(mutant: Mutant) -> Description:
    return describe(mutant.host, mutant.variant, load(mutant))


def wanted(hosts: list[str], every: int) -> list[Mutant]:
    """The bugs of these hosts (all, where none is named), or each so-many-th of them in the tables' order."""
    return [mutant for mutant in table().values() if not hosts or mutant.host in hosts][::every]


def run(results: dict[str, Any], mutants: list[Mutant], with_zoo: bool) -> None:
    from tests.doctor.zoo import ZOO

    cases: dict[str, Callable[[], Description]] = {}
    for mutant in mutants:
        cases[f"healthy/{mutant.host}/{mutant.variant}"] = partial(describe, mutant.host, mutant.variant)
        cases[f"mutant/{mutant.id}"] = partial(planted, mutant)
    if with_zoo:
        cases |= {f"zoo/{name}": make for name, make in ZOO.items()}
    for name, make in cases.items():
        if name in results:
            continue
        keep(name, {tool: ask(tool, make()) for tool in TOOLS}, results)


def keep(name: str, told: dict[str, dict[str, str]], results: dict[str, Any]) -> None:
    results[name] = told
    print(name, told, file=sys.stderr, flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def run_wild(results: dict[str, Any], peers: str, repos: Path) -> None:
    """Every description of the wild zoo, in a process of its own: code bases share names of modules."""
    for name in WILD:
        if f"wild/{name}" in results or clone_of(WILD[name].repository, repos) is None:
            continue
        command = [sys.executable, "-m", "bench.doctor_peers", peers, "--repos", str(repos), "--child", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
        keep(f"wild/{name}", {tool: told.get(tool, {"raised": "not applicable"}) for tool in TOOLS}, results)


def told_in_child(name: str, repos: Path) -> dict[str, dict[str, str]]:
    clone = clone_of(WILD[name].repository, repos)
    assert clone is not None
    described = WILD[name].describe(clone)
    return {tool: ask(tool, described) for tool in TOOLS}


def found(mutant: Mutant, tool: str, results: dict[str, Any]) -> bool:
    usual = results[f"healthy/{mutant.host}/{mutant.variant}"][tool]
    told = results[f"mutant/{mutant.id}"][tool]
    return any(name not in usual and severity != "not applicable" for name, severity in told.items())


def wild_table(results: dict[str, Any]) -> None:
    truths = tomllib.loads(TRUTH.read_text(encoding="utf-8"))["true"]
    cases = [name for name in results if name.startswith("wild/")]
    known = {f"wild/{truth['description']}" for truth in truths} & set(cases)
    print("| tool | code bases with a known fault that it speaks of | others that it fails |\n|---|---:|---:|")
    for tool in TOOLS:
        spoken = [name for name in known if {"failure", "warning"} & set(results[name][tool].values())]
        failed = [name for name in cases if name not in known and "failure" in results[name][tool].values()]
        print(f"| {tool} | {len(spoken)} of {len(known)} | {len(failed)} of {len(cases) - len(known)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", help="the folder that they are installed in")
    parser.add_argument("--only", action="append", default=[], choices=HOSTS, help="the bugs of this host")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th bug")
    parser.add_argument("--repos", type=Path, help="a folder of clones: examine the wild zoo instead")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, options.peers)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.child:
        print(json.dumps(told_in_child(options.child, options.repos)))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.repos:
        run_wild(results, options.peers, options.repos)
        wild_table(results)
        return
    mutants = wanted(options.only, options.every)
    run(results, mutants, with_zoo=not options.only)
    hosts = {f"healthy/{mutant.host}/{mutant.variant}" for mutant in mutants}
    healthy = [name for name in results if name in hosts or (name.startswith("zoo/") and not options.only)]
    print("| tool | planted bugs found | missed | healthy models called ill |\n|---|---:|---:|---:|")
    for tool in TOOLS:
        hits = sum(found(mutant, tool, results) for mutant in mutants)
        alarms = sum("failure" in results[name][tool].values() for name in healthy)
        print(f"| {tool} | {hits} | {len(mutants) - hits} | {alarms} of {len(healthy)} |")


if __name__ == "__main__":
    main()
