"""Has this text been there before? For leaving out duplicates of corpora that do not fit into memory.

A text is known by 64 bits of its hash, eight bytes each in a sorted array: 20 million texts take 160 MB. That two
different texts of so many share their bits has a chance of one in 100,000.
"""

import hashlib
from pathlib import Path

import numpy as np

from clearhead.data.store import digest

RECENT = 1 << 18  # kept as they come; then they are sorted in


class Seen:
    def __init__(self) -> None:
        self.recent: set[int] = set()
        self.sorted = np.zeros(0, np.uint64)

    def __call__(self, *texts: str) -> bool:
        """Whether they were there before; from now on they were."""
        content = "\0".join(texts).encode("utf-8", "surrogatepass")
        return self._note(hashlib.blake2b(content, digest_size=8).digest())

    def file(self, path: Path) -> bool:
        return self._note(bytes.fromhex(digest(path)[:16]))

    def _note(self, sign: bytes) -> bool:
        number = int.from_bytes(sign, "little")
        if number in self.recent:
            return True
        place = int(np.searchsorted(self.sorted, np.uint64(number)))
        if place < len(self.sorted) and int(self.sorted[place]) == number:
            return True
        self.recent.add(number)
        if len(self.recent) >= RECENT:
            new = np.fromiter(self.recent, np.uint64, len(self.recent))
            self.sorted = np.sort(np.concatenate([self.sorted, new]), kind="stable")
            self.recent = set()
        return False
