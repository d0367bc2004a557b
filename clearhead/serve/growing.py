"""A text that grows token by token: characters that are not whole yet and anything that may turn out to be the
beginning of a stop string are held back; what is released is never taken back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clearhead.decoding.rolling import Next
from clearhead.tokenizer.base import Tokenizer

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class Told:
    """A token and what the model said of it; `offset` is where its text begins."""

    token: str
    log_prob: float
    likeliest: dict[str, float]
    offset: int


@dataclass(frozen=True)
class Piece:
    """What is released at once; the last piece has a reason."""

    text: str
    tokens: list[Told]
    finish: Finish | None


class GrowingText:
    """The text of one continuation."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str], log_probs: bool) -> None:
        self.tokenizer, self.stop, self.log_probs = tokenizer, [one for one in stop if one], log_probs
        self.decoder = tokenizer.decoder(prompt)
        self.released = 0  # characters
        self.held, self.tokens = "", list[Told]()

    def push(self, one: Next) -> Piece:
        """What the next token releases, which may be nothing."""
        if not one.ended:
            if self.log_probs:
                self.tokens.append(self._told(one))
            self.held += self.decoder.push(one.token)
        if one.last:
            self.held += self.decoder.finish()
        found = [place for place in map(self.held.find, self.stop) if place >= 0]
        if found:
            return self._release(min(found), "stop")
        if one.last:
            return self._release(len(self.held), "stop" if one.ended else "length")
        return self._release(len(self.held) - self._promising(), None)

    def _promising(self) -> int:
        """How many characters at the end could begin a stop string."""
        longest = max(map(len, self.stop), default=0)
        for length in range(min(longest - 1, len(self.held)), 0, -1):
            if any(one.startswith(self.held[-length:]) for one in self.stop):
                return length
        return 0

    def _release(self, count: int, finish: Finish | None) -> Piece:
        text, self.held = self.held[:count], self.held[count:]
        self.released += count
        # tokens at the very end have no character yet, or one that is held; if the text is over, they belong to it
        whole = finish is not None and not self.held
        ready = [told for told in self.tokens if whole or told.offset < self.released]
        self.tokens = self.tokens[len(ready) :]
        return Piece(text, ready, finish)

    def _told(self, one: Next) -> Told:
        others = {self.name(token): log_prob for token, log_prob in one.likeliest}
        return Told(self.name(one.token), one.log_prob, others, self.released + len(self.held))

    def name(self, token: int) -> str:
        """A token as text; bytes that are no whole character as OpenAI writes them."""
        raw = self.tokenizer.token_bytes(token)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
