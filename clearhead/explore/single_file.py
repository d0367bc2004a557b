"""The page as one file that needs no server: `clearhead explore RUN --text "…" -o page.html`, or a cell of a notebook.

A small model travels with it, weights and all, and the page's own JavaScript computes (forward.js): students type,
force tokens and silence heads on any web space. Of a model that is too big, or that has a piece which the JavaScript
does not know, the file holds one pass with its tensors instead, to look at. Scripts and styles are put in as text;
nothing is fetched from anywhere, and the file's own policy forbids it.
"""

import base64
import hashlib
import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.data.masked import MASK
from clearhead.decoding.load import LoadedModel
from clearhead.disk import write_whole
from clearhead.explore.bundle import PAGE, bundle
from clearhead.explore.history import finite
from clearhead.explore.requests import OfPass, PassRequest
from clearhead.explore.session import Session
from clearhead.explore.wire import Sent, pack
from clearhead.explore.writing import end_of, forbidden
from clearhead.model import ModelConfig
from clearhead.settings import to_dict
from clearhead.tokenizer.bytepair import BytePair
from clearhead.tokenizer.characters_and_integers import Characters, Integers
from clearhead.tokenizer.split import KNOWN

MOST_PARAMETERS = 6_000_000  # about five million, and a little room
MOST_STORED = 24 << 20  # bytes of tensors in a file that holds one pass
STYLE, SCRIPT = '<link rel="stylesheet" href="/page/style.css">', '<script type="module" src="/page/main.js"></script>'
TOKEN = '<meta name="clearhead-token" content="CLEARHEAD_TOKEN">'


@dataclass(frozen=True)
class Page:
    """The file's text. In a notebook it shows itself, in a frame of its own."""

    html: str
    alive: bool  # whether it computes, or only shows one pass

    def save(self, path: Path) -> None:
        write_whole(path, self.html)

    def _repr_html_(self) -> str:
        # ASCII alone, so that the policy's digests hold whatever encoding the notebook is read in
        shown = html.escape(self.html, quote=True).encode("ascii", "xmlcharrefreplace").decode()
        may = "allow-scripts allow-forms allow-downloads"  # a form's submission is how the page hears of Read
        frame = f'style="width: 100%; height: 900px; border: 1px solid #8888" sandbox="{may}"'
        return f'<iframe title="clearhead explore" srcdoc="{shown}" {frame}></iframe>'


def page_of(
    run: str,
    text: str | None = None,  # the first of its examples unless given
    checkpoint: str = "best",
    session: Session | None = None,
    begin: str = "",  # the state to begin with, as in the page's address: "view=look&at=decoder.2.cross.1"
) -> Page:
    """The page of a run, opened at a text."""
    session = session or Session(run, checkpoint)
    loaded = session.loaded()
    model = session.model()
    del model["path"]  # where the run lay is nobody else's business
    first = text if text is not None else (model["examples"] or [""])[0]
    most = 24 if loaded.model.config.kind == "decoder" else None  # as many as the page asks for
    # also: a text that cannot be read is refused before anything is written
    made = session.read(PassRequest(first, max_tokens=most))
    carried: dict[str, Any] = {"model": model, "training": session.training(), "first": made["text"], "begin": begin}
    alive = can_be_alive(loaded)
    if alive:
        carried |= {"settings": settings_of(loaded), "tokenizer": tokenizer_of(loaded)}
        carried["training"]["checkpoints"] = [
            one for one in carried["training"]["checkpoints"] if one["name"] == model["checkpoint"]
        ]
        weights = loaded.model.state_dict()
        tensors = pack([Sent(name, "", weight) for name, weight in weights.items()])
    else:
        stored, tensors = stored_pass(session, made)
        carried["stored"] = stored
    return Page(assemble(carried, tensors), alive)


# ---- what the file carries -----------------------------------------------------------------------------------------


def stored_pass(session: Session, made: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """One pass with what is told of it, and as many of its tensors as there is room for, the weights of heads first."""
    taken = session.passes[made["id"]].taken
    order = sorted(taken, key=lambda name: (not name.endswith((".weights", ".mask")), list(taken).index(name)))
    sent, size = [], 0
    for name in order:
        size += 4 * taken.tensors[name].numel()
        if size <= MOST_STORED:
            sent.append(Sent(name, taken.letters[name], taken.tensors[name]))
    names = {one.name for one in sent}
    made = {**made, "tensors": [row for row in made["tensors"] if row["name"] in names]}
    answered = bool(made["answer"])
    worth = session.worth(OfPass(made["id"])) if answered else {"log_probs": [], "heads": [], "layers": []}
    return {"pass": made, "worth": worth, "guesses": session.guesses(OfPass(made["id"]))}, pack(sent)


# every choice that forward.js follows; another key with another value than its default is one it does not know
FOLLOWED: dict[str, Any] = {
    "positions.kind": {"sinusoidal", "learned", "rope", "alibi", "none"},
    "positions.layout": {"interleaved", "split"},
    "norm.kind": {"layer", "rms"},
    "norm.placement": {"pre", "post"},
    "activation": {"relu", "gelu", "gelu_tanh", "silu", "swiglu"},
    "head.kind": {"vocabulary", "masked", "tokens", "pooled", "none"},
    "kind": {"encoder-decoder", "decoder", "encoder"},
    **dict.fromkeys(
        (
            *(
                "vocab_size",
                "d_model",
                "heads",
                "kv_heads",
                "d_ff",
                "encoder_layers",
                "decoder_layers",
                "bias",
                "window",
            ),
            *("embedding.scaled", "embedding.norm", "embedding.segments", "positions.base", "positions.max_length"),
            *("norm.epsilon", "norm.final", "head.tied", "head.bias", "head.classes", "init", "kernels"),
            *("dropout.residual", "dropout.embedding", "dropout.attention", "dropout.hidden"),
        )
    ),
}


def can_be_alive(loaded: LoadedModel) -> bool:
    """Whether the model is small, and the page's JavaScript knows every piece of it and of its tokenizer."""
    if sum(parameter.numel() for parameter in loaded.model.parameters()) > MOST_PARAMETERS:
        return False
    tokenizer = loaded.tokenizer
    if isinstance(tokenizer, BytePair) and tokenizer.pattern not in KNOWN:
        return False
    return isinstance(tokenizer, BytePair | Characters | Integers) and follows(loaded.model.config)


def follows(config: ModelConfig) -> bool:
    """Whether forward.js knows every choice of a configuration; what it was never told of must be as usual."""
    usual = flat(to_dict(ModelConfig(config.vocab_size)))
    for key, value in flat(to_dict(config)).items():
        followed = FOLLOWED[key] if key in FOLLOWED else {usual.get(key)}
        if followed is not None and value not in followed:
            return False
    return True


def flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Tables in tables as one, with dotted names."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        result |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return result


def settings_of(loaded: LoadedModel) -> dict[str, Any]:
    """What reading and writing need besides the weights."""
    settings, tokenizer = loaded.settings, loaded.tokenizer
    rows = loaded.model.config.positions.max_length
    return {
        "most_source": min(settings.max_source, rows or settings.max_source),
        "positions": rows,
        "start": tokenizer.bos_id,
        "end": tokenizer.eos_id,
        "stop": end_of(loaded),
        "beginning": loaded.beginning,
        "documents": loaded.documents,
        "mask": tokenizer.special.get(MASK),
        "forbidden": list(forbidden(loaded)),
        "max_extra": settings.max_extra,
        "max_tokens": settings.max_tokens,
        "length_penalty": settings.length_penalty,
        "length_form": settings.length_form,
        "refill": settings.refill,
    }


def tokenizer_of(loaded: LoadedModel) -> dict[str, Any]:
    """The tokenizer as tokenize.js takes it; a token's bytes as Latin-1 letters."""
    from clearhead.explore.session import token_names

    tokenizer = loaded.tokenizer
    names = token_names(loaded)
    raw = [token_bytes(loaded, token).decode("latin-1") for token in range(len(names))]
    common = {"kind": type(tokenizer).__name__, "special": tokenizer.special, "names": names, "bytes": raw}
    if isinstance(tokenizer, Characters):
        return {**common, "characters": tokenizer.characters}
    if isinstance(tokenizer, Integers):
        return {**common, "count": tokenizer.count}
    assert isinstance(tokenizer, BytePair)
    known = tokenizer.vocabulary
    return {
        **common,
        "alphabet": [known[bytes([byte])] for byte in range(256)],
        "merges": [[known[left], known[right], known[left + right]] for left, right in tokenizer.merges],
        "pattern": in_javascript(tokenizer.pattern),
        "whole_words": tokenizer.whole_words,
    }


def token_bytes(loaded: LoadedModel, token: int) -> bytes:
    """The bytes of an id; of one that no token has, none."""
    try:
        return loaded.tokenizer.token_bytes(token)
    except ValueError:
        return b""


def in_javascript(pattern: str) -> str:
    """A known pre-split pattern as JavaScript reads it: white space as Unicode has it, both cases written out."""
    pattern = pattern.replace(r"\s", r"\p{White_Space}").replace(r"\S", r"\P{White_Space}")

    def both_cases(found: re.Match[str]) -> str:
        inside, result = False, ""
        for letter in found[1]:
            inside = letter == "[" or (inside and letter != "]")
            pair = letter + letter.upper() + ("ſ" if letter == "s" else "") if letter.isalpha() else letter
            result += pair if inside or not letter.isalpha() else f"[{pair}]"
        return f"(?:{result})"

    return re.sub(r"\(\?i:([^()]*)\)", both_cases, pattern)


# ---- how the file is put together ----------------------------------------------------------------------------------


def assemble(carried: dict[str, Any], tensors: bytes) -> str:
    """index.html with everything in it."""
    text, style, script = (PAGE / "index.html").read_text("utf-8"), (PAGE / "style.css").read_text("utf-8"), bundle()
    for line in (STYLE, SCRIPT, TOKEN):
        if text.count(line) != 1:
            raise ValueError(f"page/index.html must hold this line once: {line}")
    policy = (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    # "<" is written out, so that no token can end the block it stands in
    data = json.dumps(finite(carried), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    blocks = (
        f'<script type="application/json" id="clearhead-carried">{data}</script>\n'
        f'<script type="text/plain" id="clearhead-tensors">{base64.b64encode(tensors).decode()}</script>\n'
    )
    text = text.replace(TOKEN, f'<meta http-equiv="Content-Security-Policy" content="{policy}">')
    text = text.replace(STYLE, f"<style>{style}</style>")
    return text.replace(SCRIPT, f'{blocks}<script type="module">{script}</script>')


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
