"""Small pictures of tensors in a terminal or a notebook: characters, from light to dark."""

from torch import Tensor

SHADES = " ·░▒▓█"


def shade(value: float, low: float, high: float) -> str:
    share = 0.0 if high <= low else (value - low) / (high - low)
    return SHADES[min(len(SHADES) - 1, max(0, round(share * (len(SHADES) - 1))))]


def heat(matrix: Tensor, rows: str = "", columns: str = "") -> str:
    """A matrix, two characters a number, its smallest light and its largest dark."""
    low, high = matrix.min().item(), matrix.max().item()
    lines = ["".join(2 * shade(value, low, high) for value in row) for row in matrix.tolist()]
    side = max(len(rows), 1)
    drawn = [f"{rows if number == 0 else '':>{side}} │{line}│" for number, line in enumerate(lines)]
    return "\n".join(drawn + ([f"{'':>{side}}  {columns}"] if columns else []))
