"""How an embedding usually goes wrong."""

from collections.abc import Mapping
from typing import Any

from clearhead.learn.exercise import Mistake

ROWS = "table[tokens]"
SCALE = " * math.sqrt(table.size(1))"
WHOLE = ROWS + SCALE
FACTOR = r"sqrt|\*\*|pow|size|shape|scale"


def instead(id: str, say: str, new: str, where: str) -> Mistake:
    return Mistake(id, "embed", say, changes=((WHOLE, new),), where=where)


def a_factor(found: Mapping[str, dict[str, Any]]) -> float:
    return 0.75 if "embedding.factor" in found else 0.0


def zero_silent(found: Mapping[str, dict[str, Any]]) -> float:
    return 0.85 if found.get("embedding.zero", {}).get("value") else 0.0


def zero_frozen(found: Mapping[str, dict[str, Any]]) -> float:
    return 0.85 if found.get("embedding.zero", {}).get("value") is False else 0.0


MISTAKES = (
    instead("embedding-scale-missing", "the rows are not multiplied by √D", ROWS, r"return|\["),
    instead(
        "embedding-scale-divided", "divided by √D instead of multiplied", f"{ROWS} / math.sqrt(table.size(1))", FACTOR
    ),
    instead("embedding-scale-divided", "divided by D: multiply, by its root", f"{ROWS} / table.size(1)", FACTOR),
    instead("embedding-scale-width", "multiplied by D, not by its root", f"{ROWS} * table.size(1)", FACTOR),
    instead(
        "embedding-scale-width",
        "multiplied by half of D: `D ** 1 / 2` is (D ** 1) / 2, and the root is D ** 0.5",
        f"{ROWS} * table.size(1) / 2",
        FACTOR,
    ),
    instead(
        "embedding-scale-vocab",
        "multiplied by the root of V, the number of tokens; it should be D, the width of a row",
        f"{ROWS} * math.sqrt(table.size(0))",
        FACTOR,
    ),
    instead(
        "embedding-scale-other",
        "multiplied by the root of S, the length of the sequence; it should be D, the width of a row",
        f"{ROWS} * math.sqrt(tokens.size(1))",
        FACTOR,
    ),
    instead(
        "embedding-scale-other",
        "multiplied by the root of B, the size of the batch; it should be D, the width of a row",
        f"{ROWS} * math.sqrt(tokens.size(0))",
        FACTOR,
    ),
    Mistake(
        "embedding-scale-other",
        "embed",
        "the rows are right but for a factor: it should be the root of D, the width of a row, each time",
        where=FACTOR,
        fits=a_factor,
    ),
    instead(
        "embedding-scale",
        "the root was rounded to a whole number",
        f"{ROWS} * int(math.sqrt(table.size(1)))",
        r"int|//|round|floor|isqrt",
    ),
    instead(
        "embedding-scale",
        "the root was rounded to a whole number",
        f"{ROWS} * round(math.sqrt(table.size(1)))",
        r"int|//|round|ceil",
    ),
    instead(
        "embedding-scale",
        "the root was rounded to 16 bits, so that every vector is a little off",
        f"{ROWS} * torch.tensor(table.size(1) ** 0.5, dtype=torch.bfloat16).item()",
        r"bfloat16|half|16",
    ),
    instead(
        "embedding-scale",
        "the root was rounded to 16 bits, so that every vector is a little off",
        f"{ROWS} * torch.tensor(table.size(1) ** 0.5, dtype=torch.float16).item()",
        r"bfloat16|half|16",
    ),
    instead("scale-added", "√D was added; it should multiply", f"{ROWS} + math.sqrt(table.size(1))", r"\+"),
    Mistake(
        "table-changed",
        "embed",
        "the table itself was multiplied: it grows with every call; multiply what was looked up",
        changes=(("    return " + WHOLE, "    table.mul_(math.sqrt(table.size(1)))\n    return " + ROWS),),
        where=r"\*=|_\(|\[:\]",
    ),
    Mistake(
        "table-changed",
        "embed",
        "max_norm shortens rows of the table itself",
        text="""def embed(tokens, table):
    return nn.functional.embedding(tokens, table, max_norm=1.0) * math.sqrt(table.size(1))
""",
        where=r"max_norm",
    ),
    Mistake(
        "padding-row-read",
        "embed",
        "token 0 is taken for padding: its row gets no gradient, and here it is a token like any other",
        text="""def embed(tokens, table):
    return nn.functional.embedding(tokens, table, padding_idx=0) * math.sqrt(table.size(1))
""",
        where=r"padding_idx",
        fits=zero_frozen,
    ),
    Mistake(
        "token-zero-hidden",
        "embed",
        "token 0 becomes a vector of zeros; here it is a token like any other",
        changes=((WHOLE, WHOLE + " * (tokens != 0)[..., None]"),),
        where=r"!= ?0|== ?0|> ?0|padding|mask",
        fits=zero_silent,
    ),
    instead(
        "tokens-shifted",
        "every token got the row before its own: rows are counted from 0, as tokens are",
        "table[tokens - 1]" + SCALE,
        r"- ?1",
    ),
    instead(
        "tokens-shifted",
        "every token got the row after its own: rows are counted from 0, as tokens are",
        "table[(tokens + 1) % len(table)]" + SCALE,
        r"\+ ?1",
    ),
    instead(
        "detached",
        "the values are right, but the table has no gradient: it would never learn",
        "table.detach()[tokens]" + SCALE,
        r"detach|data|no_grad|tensor\(|from_pretrained|nn\.Embedding|copy_|numpy|tolist",
    ),
    instead(
        "columns-read",
        "columns of the table were taken; the row of a token is wanted",
        "table[:, tokens]" + SCALE,
        r"\[:",
    ),
    instead(
        "columns-read",
        "columns of the table were taken; the row of a token is wanted",
        "table.T[tokens]" + SCALE,
        r"\.T|transpose|\.t\(",
    ),
    instead(
        "batch-sequence-swapped",
        "batch and sequence have changed places",
        f"{ROWS}.transpose(0, 1)" + SCALE,
        r"transpose|permute|\.T",
    ),
    instead(
        "tokens-flattened", "the rows of the batch were run together", f"{ROWS}.flatten(0, 1)" + SCALE, "view|flat"
    ),
    instead(
        "tokens-summed",
        "the tokens of a row were added up: each keeps a vector of its own",
        f"{ROWS}.sum(1)" + SCALE,
        r"sum|mean|bag",
    ),
    instead(
        "tokens-summed",
        "the tokens of a row were averaged: each keeps a vector of its own",
        f"{ROWS}.mean(1)" + SCALE,
        r"sum|mean|bag",
    ),
    instead(
        "rows-normalised",
        "each row was given the length √D; multiply it by √D and let it keep its own length",
        f"nn.functional.normalize({ROWS}, dim=-1)" + SCALE,
        r"norm",
    ),
    instead(
        "rows-normalised",
        "the rows were centred or normalised; they should only be multiplied by √D",
        f"nn.functional.layer_norm({ROWS}, table.shape[1:])" + SCALE,
        r"norm|mean|std",
    ),
    instead(
        "positions-unasked",
        "positions were added already; they come in the next exercise",
        WHOLE + " + sinusoids(tokens.size(1), table.size(1))",
        r"sin",
    ),
    instead(
        "dropout-in-eval",
        "dropout acts here; it comes later, and only in training",
        f"nn.functional.dropout({WHOLE}, 0.1)",
        r"dropout",
    ),
)
