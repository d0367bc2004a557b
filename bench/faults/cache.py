"""Every file of the cache of data, damaged in every way, under the commands that read it.

The cache is nobody's but ours, and can be made again at any time: so whatever is damaged is made again, without a word,
to the same bytes, and the result is the right one. Only what cannot be read or replaced may be refused, by name.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.faults.fork import WORKSPACE
from bench.faults.forked import Ended, caching_in, call
from bench.faults.outcome import Trial
from bench.faults.run_folder import DAMAGES, Damage, files_of, names, prepare, prints, refuse

FAMILY = "a file of the cache damaged"
KINDS = ("files", "text", "labels")
MADE = "checkpoints/step_00000001/model.safetensors"
COMMANDS = {
    "train": ("train", "recipe.toml", "--run", "OUT", "--set", "training.steps=1"),
    "data look": ("data", "look", "recipe.toml", "--json"),
    "data prepare": ("data", "prepare", "recipe.toml", "--verify"),
    "evaluate": ("evaluate", "whole", "--json", "--limit", "2"),
}


@dataclass(frozen=True)
class Bench:
    """A folder with a recipe, its cache, and what each command makes of it undamaged."""

    folder: Path
    right: dict[str, tuple[bytes, str]]

    def ended(self, name: str, place: Path, first: Callable[[], None]) -> tuple[Ended, tuple[bytes, str]]:
        """How a command ends with the cache that lies at `place`, and its result."""
        words = [str(place / "out") if word == "OUT" else word for word in COMMANDS[name]]

        def begin() -> None:
            caching_in(place / "cache")()
            first()

        ended = call(words, begin, self.folder)
        made = prints(place / "out").get(MADE, "") if name == "train" else ""
        return ended, (b"" if name == "train" else ended.out, made)

    def attempt(self, name: str, damage: Damage, file: str, unreadable: bool) -> str:
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="case-") as here:
            place = Path(here)
            shutil.copytree(self.folder / "cache", place / "cache")
            if name not in self.right:
                ended, self.right[name] = self.ended(name, place, lambda: None)
                if ended.status:
                    raise RuntimeError(f"clearhead {name} with a whole cache: {ended.err}")
                shutil.rmtree(place / "out", ignore_errors=True)
            path = place / "cache" / file
            damage(path, self.another(file))
            ended, result = self.ended(name, place, partial(refuse, path) if unreadable else lambda: None)
            if wrong := ended.fault():
                return wrong
            if ended.status == 2:
                return "" if names(ended.complaint, file) else f"status 2, but {file} is not named: {ended.complaint}"
            if result != self.right[name]:
                return f"status 0, but another result: {result[0][-200:]!r}"
            return "" if unreadable else self.healed(place / "cache", name)

    def healed(self, cache: Path, name: str) -> str:
        """Whether all stores that the command reads are as they were."""
        now, whole = prints(cache), prints(self.folder / "cache")
        wrong = [one for one in whole if one.startswith("stores/") and now.get(one) != whole[one]]
        return f"not made again: {wrong[0]}" if wrong and name != "evaluate" else ""

    def another(self, file: str) -> Path:
        """A file of the same kind: of another column, another note."""
        beside = sorted((self.folder / "cache" / file).parent.iterdir())
        others = [path for path in beside if path.suffix == Path(file).suffix and path.name != Path(file).name]
        return (others or beside)[0]


def trials(small: bool) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(dir=WORKSPACE) as name:
        for kind in KINDS[:1] if small else KINDS:
            folder = Path(name) / kind
            prepare(folder, kind)
            every = list(cases(Bench(folder, {}), kind))
            once_missed = [one for one in every if "about.json: unreadable: data look" in one.case]
            yield from every[::43] + once_missed if small else every


def cases(bench: Bench, kind: str) -> Iterator[Trial]:
    for number, file in enumerate(files_of(bench.folder / "cache")):
        called = re.sub(r"sums/\w+", f"sums/{number}", file)  # which goes by the path, and that is another every time
        for title, damage in DAMAGES.items():
            for name in COMMANDS:
                attempt = partial(bench.attempt, name, damage, file, title == "unreadable")
                yield Trial(FAMILY, f"{kind}: {called}: {title}: {name}", attempt)
