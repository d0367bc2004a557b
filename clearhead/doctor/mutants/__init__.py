"""Planted bugs: each is one change to a healthy host model, kept as a row of a table.

A row names the host, the healthy line and the broken line. `load` reads the host's source, makes the change and
imports the result under a name of its own, so the healthy source stays the only copy and a row that no longer
matches it fails loudly. Numbers from 1 to 83 are the catalogue's; rows that begin with x are further bugs.
"""

import linecache
import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module, resources
from types import ModuleType

from clearhead.errors import InputError

HOSTS = (
    "decoder", "encoder", "seq2seq", "loop", "sequence_first", "functional", "by_id", "fused", "pairs", "unified",
    "relative", "parallel", "folded", "capped", "shifted", "unpadded",
)  # fmt: skip
TABLES = (*HOSTS, "lasting", "sublayers", "details")  # one for each host, and three of bugs that all hosts have


@dataclass(frozen=True)
class Mutant:
    """One planted bug: where it lives, what changes, and which causes would name it rightly."""

    id: str
    title: str
    host: str  # the module in hosts/ that changes
    variant: str  # the description it is examined under, a key of hosts.describe.VARIANTS
    healthy: str
    broken: str
    causes: tuple[str, ...]  # ids in causes/ that a right diagnosis may give
    also: tuple[tuple[str, str], ...] = ()  # a second edit, where the bug needs two
    held_out: bool = False  # kept aside while the probes were written

    @property
    def edits(self) -> tuple[tuple[str, str], ...]:
        return ((self.healthy, self.broken), *self.also)


def planted(
    host: str,
    held_out: Collection[str],  # ids
    id: str,
    title: str,
    variant: str,
    healthy: str,
    broken: str,
    *causes: str,
    also: tuple[tuple[str, str], ...] = (),
) -> Mutant:
    """A row of a host's table; with the first two arguments given, what the tables are made of."""
    return Mutant(id, title, host, variant, healthy, broken, causes, also, held_out=id in held_out)


def source(host: str) -> str:
    """The healthy source of a host module."""
    return resources.files("clearhead.doctor.hosts").joinpath(f"{host}.py").read_text(encoding="utf-8")


def broken_source(mutant: Mutant) -> str:
    """The host's source with the bug planted; each healthy text must occur exactly once."""
    text = source(mutant.host)
    for healthy, broken in mutant.edits:
        count = text.count(healthy)
        if count != 1:
            where = f"hosts/{mutant.host}.py"
            raise InputError(f"mutant {mutant.id}: {healthy!r} occurs {count} times in {where}, not once")
        text = text.replace(healthy, broken)
    return text


def module_from(text: str, name: str, filename: str) -> ModuleType:
    """Import source text as a module; tracebacks and watched operations show its lines."""
    module = ModuleType(name)
    module.__file__ = filename
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    # dataclasses look their module up while the class body is being read
    sys.modules[name] = module
    exec(compile(text, filename, "exec"), module.__dict__)
    return module


def load(mutant: Mutant) -> ModuleType:
    """The host module with the bug in it."""
    filename = f"<{mutant.host}.py with bug {mutant.id}>"
    return module_from(broken_source(mutant), f"clearhead.doctor.hosts.{mutant.host}_{mutant.id}", filename)


def table() -> dict[str, Mutant]:
    """Every planted bug by its id."""
    rows = [row for name in TABLES for row in import_module(f"clearhead.doctor.mutants.{name}").MUTANTS]
    found = {row.id: row for row in rows}
    if len(found) != len(rows):
        raise InputError("two mutants share an id")
    return found
