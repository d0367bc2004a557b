"""The forms in which models take masks, as code: the shape, which way True points, boolean, integer or additive.

A padding mask is made of `real` (B, S), True at real tokens; an attention mask of `causal(tokens)` (S, S), True where
one may look. A family of forms goes together: whoever wants padding as (B, 1, S) wants the triangle as (B, S, S).
"""

from dataclasses import dataclass

MEANINGS = {  # what is in the mask: as code around a name or an index, and around anything
    "True = may be seen": ("{}", "{}"),
    "True = hidden": ("~{}", "~({})"),
    "1 = may be seen": ("{}.long()", "({}).long()"),
    "0 = may be seen, -inf = hidden": ("additive({})", "additive({})"),
    "1 = hidden": ("(~{}).long()", "(~({})).long()"),
}
INDEX = {"(B, S)": "", "(B, 1, 1, S)": "[:, None, None, :]", "(B, 1, S)": "[:, None, :]"}
SQUARE = {"(B, S)": "(S, S)", "(B, 1, 1, S)": "(B, 1, S, S)", "(B, 1, S)": "(B, S, S)"}
HELPERS = {
    "causal": '''def causal(tokens):
    """(S, S), True where a position may look: at itself and before."""
    return torch.ones(tokens.size(1), tokens.size(1), dtype=torch.bool).tril()''',
    "everywhere": '''def everywhere(tokens):
    """(S, S), True: every position may look everywhere."""
    return torch.ones(tokens.size(1), tokens.size(1), dtype=torch.bool)''',
    "additive": '''def additive(may_attend):
    """What is added to the scores: 0 where one may look, else -inf."""
    return torch.zeros(may_attend.shape).masked_fill(~may_attend, float("-inf"))''',
    "memory": '''def memory(model, tokens):
    """What stands in for the outputs of an encoder: fixed numbers, (B, 9, D)."""
    width = next(module for module in model.modules() if isinstance(module, nn.Embedding)).embedding_dim
    numbers = torch.randn(1, 9, width, generator=torch.Generator().manual_seed(0))
    return numbers.to(next(model.parameters()).dtype).expand(tokens.size(0), -1, -1)''',
    "all_real": '''def all_real(tokens):
    """(B, S), True: nothing is padding."""
    return torch.ones_like(tokens, dtype=torch.bool)''',
}


@dataclass(frozen=True)
class Form:
    """One way to write masks."""

    shape: str  # of a padding mask; the attention mask of the same family has SQUARE[shape]
    meaning: str

    def padding(self, real: str) -> str:
        return MEANINGS[self.meaning][0].format(f"{real}{INDEX[self.shape]}")

    def attention(self, given: str, real: str = "") -> str:
        """The causal triangle, with the padding in it where the shape has room for it and it is wanted."""
        if self.shape == "(B, S)" or not real:
            index = {"(B, S)": "", "(B, 1, 1, S)": "[None, None]", "(B, 1, S)": "[None]"}[self.shape]
            return MEANINGS[self.meaning][0].format(f"causal({given}){index}")
        return MEANINGS[self.meaning][1].format(f"{real}{INDEX[self.shape]} & causal({given})")

    def everything(self, given: str) -> str:
        """An attention mask that hides nothing."""
        return MEANINGS[self.meaning][0].format(f"everywhere({given})")

    @property
    def points_at(self) -> str:
        """What the larger value marks: "seen" or "hidden"."""
        return "hidden" if self.meaning in ("True = hidden", "1 = hidden") else "seen"

    def __str__(self) -> str:
        return f"{self.shape}, {self.meaning}"


FORMS = [Form(shape, meaning) for shape in INDEX for meaning in MEANINGS]


def helpers(code: str) -> list[str]:
    """The helper functions that a piece of code uses."""
    return [text for name, text in HELPERS.items() if f"{name}(" in code]
