"""How sinusoids usually go wrong."""

from collections.abc import Callable, Mapping
from typing import Any

from clearhead.learn.exercise import Mistake

POSITION = "torch.arange(length, dtype=torch.float64)[:, None]"
FREQUENCY = "10_000 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)"
EXPONENT = "torch.arange(0, width, 2, dtype=torch.float64) / width"
ANGLE = "position * frequency"
WHOLE = "torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)"
CAT = "torch.cat((angle.sin(), angle.cos()), dim=-1)"
POWERED = "(torch.arange(0, width, 2, dtype=torch.float64) / width) ** 1e-4"
LAST = "torch.arange(width // 2, dtype=torch.float64) / max(width // 2 - 1, 1)"

Findings = Mapping[str, dict[str, Any]]
POWER = r"10_?000|1e4|\*\*|pow|exp\("
COLUMNS = r"cat|stack|::2|sin"


def of(id: str, say: str, *changes: tuple[str, str], where: str = POWER) -> Mistake:
    return Mistake(id, "sinusoids", say, changes=changes, where=where)


def shown(id: str, say: str, fits: Callable[[Findings], float], where: str = POWER) -> Mistake:
    return Mistake(id, "sinusoids", say, where=where, fits=fits)


def found(id: str, score: float) -> Callable[[Findings], float]:
    return lambda findings: score if id in findings else 0.0


HALF = "the pairs turn too fast: the exponent is 2i/D, where i counts pairs of columns; here it was i/D"
DOUBLE = "the pairs turn too slowly: i already counts columns by two, and was doubled once more in the exponent"
OWN = "column 2i + 1 has an exponent of its own; it must be the cosine of the same angle as column 2i"
SINES = "the columns are right, but all sines come first; sine and cosine take turns"
BASE = "the wavelengths do not grow with 10000"
PRECISION = "positions were rounded to 16 bits, where 256 and 257 are one number"

MISTAKES = (
    of("exponent-half", HALF, (EXPONENT, "torch.arange(width // 2, dtype=torch.float64) / width")),
    of("exponent-doubled", DOUBLE, (EXPONENT, "2 * " + EXPONENT)),
    of(
        "exponent-doubled",
        DOUBLE + ", in the cosines even further",
        (ANGLE, "position * frequency**2"),
        (WHOLE, "torch.stack((angle.sin(), (angle * 10_000 ** (-2 / width)).cos()), dim=-1).flatten(-2)"),
    ),
    of(
        "own-exponent",
        OWN,
        (WHOLE, "torch.stack((angle.sin(), (angle * 10_000 ** (-1 / width)).cos()), dim=-1).flatten(-2)"),
    ),
    of(
        "own-exponent",
        OWN,
        (WHOLE, "torch.stack((angle.sin(), (angle * 10_000 ** (-2 / width)).cos()), dim=-1).flatten(-2)"),
    ),
    of(
        "own-exponent",
        "columns 2i and 2i + 1 must share a frequency; here the frequencies were repeated as a block",
        (WHOLE, "torch.where(torch.arange(width) % 2 == 0, angle.repeat(1, 2).sin(), angle.repeat(1, 2).cos())"),
        where=r"repeat|cat|%",
    ),
    shown("own-exponent", OWN, found("position.pairs", 0.6)),
    shown(
        "not-sinusoids",
        "numbers beyond -1 and 1: these are no sines and cosines (learned positions come in clearhead/model)",
        lambda findings: 0.65 if findings.get("position.pairs", {}).get("large") else 0.0,
        r"rand|Embedding|return",
    ),
    of("exponent-last", "the exponent ends at 1: i was divided by D/2 - 1, not by D/2", (EXPONENT, LAST)),
    of(
        "exponent-last",
        "the exponent ends at 1: i was divided by D/2 - 1, not by D/2; and sines and cosines take turns",
        (EXPONENT, LAST),
        (WHOLE, CAT),
    ),
    of("exponent-last", "the exponent was divided by D - 1, not by D", (EXPONENT, EXPONENT + " * width / (width - 1)")),
    of("exponent-sign", "the pairs turn faster and faster: divide by 10000^(2i/D)", ("** -(", "** (")),
    shown(
        "exponent-sign",
        "the pairs turn faster and faster: divide by 10000^(2i/D)",
        lambda findings: 0.9 if findings.get("position.frequencies", {}).get("reversed") else 0.0,
    ),
    of("exponent-integer", "the exponent was rounded down to a whole number", (EXPONENT, f"({EXPONENT}).floor()")),
    of("base", "10000 is missing: these are powers of e", (FREQUENCY, f"torch.exp(-{EXPONENT})")),
    of("base", "log10 for the natural logarithm", (FREQUENCY, f"torch.exp(-4 * {EXPONENT})"), where="log10"),
    of("base", "log2 for the natural logarithm", (FREQUENCY, f"torch.exp(-math.log2(10_000) * {EXPONENT})")),
    of("base", BASE + ", but with 1000", ("10_000 **", "1_000 **")),
    of("base", BASE + ", but with 100000", ("10_000 **", "100_000 **")),
    of("base", "divided by 10000 · 2i/D; it is a power", (FREQUENCY, f"1 / (10_000 * {EXPONENT}).clamp(min=1e-9)")),
    shown("frequencies", "sines and cosines take turns, but turn at another speed", found("position.frequencies", 0.7)),
    of("sines-first", SINES, (WHOLE, CAT), where=COLUMNS),
    of(
        "cosine-first",
        "row 0 begins 1, 0: the cosine came first",
        (WHOLE, "torch.stack((angle.cos(), angle.sin()), dim=-1).flatten(-2)"),
        where=COLUMNS,
    ),
    of("cosine-first", "all cosines come first", (WHOLE, "torch.cat((angle.cos(), angle.sin()), -1)"), where=COLUMNS),
    shown("columns-order", "all columns are there, but in another order", found("position.columns", 0.7), COLUMNS),
    of(
        "one-function",
        "all columns are sines: the odd ones should be cosines",
        (WHOLE, "torch.stack((angle.sin(), angle.sin()), dim=-1).flatten(-2)"),
        where=r"sin",
    ),
    of(
        "one-function",
        "the odd columns are empty: they should be the cosines",
        (WHOLE, "torch.stack((angle.sin(), 0 * angle), dim=-1).flatten(-2)"),
        where=r"sin",
    ),
    of(
        "counted-from-one",
        "row 0 is that of position 1: count positions from 0",
        (POSITION, POSITION + " + 1"),
        where=r"arange|range",
    ),
    shown(
        "counted-from-one", "the rows begin with another position than 0", found("position.rows", 0.75), r"range|\+ ?1"
    ),
    of(
        "position-length",
        "positions were divided by the length: the same position gets another row in a longer sentence",
        (ANGLE, ANGLE + " / length"),
        where=r"length",
    ),
    of(
        "position-length",
        "the steps are a little more than one: linspace with both ends; positions are 0, 1, 2, …",
        (POSITION, "torch.linspace(0, length, length, dtype=torch.float64)[:, None]"),
        where=r"linspace",
    ),
    shown(
        "stale-state",
        "the table of an earlier call is given again, and that one had another size: it is kept from call to call",
        found("position.remembered", 0.95),
        r"global|cache|not in|is None",
    ),
    of("angle-unit", "the angle was turned from degrees into radians", (ANGLE, f"torch.deg2rad({ANGLE})"), where="rad"),
    of("angle-unit", "the angle was multiplied by 2π", (ANGLE, f"2 * math.pi * {ANGLE}"), where=r"pi"),
    of("angle-unit", "the angle was multiplied by π", (ANGLE, f"math.pi * {ANGLE}"), where=r"pi"),
    of("axes-swapped", "positions should be rows, and features columns", (WHOLE, WHOLE + ".T"), where=r"\.T|transp"),
    of("batch-dimension", "one dimension too many: (S, D) is wanted", (WHOLE, WHOLE + "[None]"), where=r"unsq|None"),
    of(
        "batch-dimension",
        "one dimension too many: (S, D) is wanted",
        (WHOLE, WHOLE + "[:, None]"),
        where=r"unsqueeze\(1|None",
    ),
    of("pairs-left", "the pairs are still a dimension", (WHOLE, WHOLE.replace(".flatten(-2)", "")), where="stack"),
    of("half-width", "half of the columns: sines only", (WHOLE, "angle.sin()"), where=r"sin"),
    of(
        "position-precision",
        PRECISION,
        (POSITION, "torch.arange(length).to(torch.bfloat16).double()[:, None]"),
        where=r"16|half",
    ),
    of("position-precision", "rounded to 16 bits", (WHOLE, WHOLE + ".to(torch.bfloat16)"), where=r"16|half"),
    of("position-precision", "rounded to 16 bits", (WHOLE, WHOLE + ".half()"), where=r"16|half"),
    shown(
        "position-precision",
        PRECISION,
        lambda findings: 0.9 if findings.get("position.far", {}).get("collide") else 0.0,
        r"16|half",
    ),
    of(
        "positions-collide",
        "positions were divided without remainder, so that neighbours share a row",
        (ANGLE, "position // (1 / frequency)"),
        where=r"//|int|floor|round",
    ),
    of(
        "position-table-short",
        "after 512 positions the table begins again",
        (POSITION, POSITION + " % 512"),
        where=r"512|%",
    ),
    shown(
        "position-table-short",
        "the first rows are right, but the table ends: any length may be asked for",
        lambda findings: 0.9 if findings.get("position.far", {}).get("ends") else 0.0,
        r"512|1000|1024|256|max|clamp|%",
    ),
    of("scaled", "the table was multiplied by √D", (WHOLE, WHOLE + " * math.sqrt(width)"), where=r"sqrt|\*\*"),
    of("scaled", "the table was divided by √D", (WHOLE, WHOLE + " / math.sqrt(width)"), where=r"sqrt|\*\*"),
    of(
        "exponent-rounded",
        "the exponent was rounded to a whole number: `//` where `/` is meant",
        (FREQUENCY, "torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000) // width))"),
    ),
    of("base-and-exponent", "base and exponent changed places: 10000 is raised to the power", (FREQUENCY, POWERED)),
)
