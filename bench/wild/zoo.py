"""All descriptions of the wild zoo."""

from bench.wild import gpts, libraries, llamas, rasbt, small, translators, tutorials  # noqa: F401
from bench.wild.clone import WILD

__all__ = ["WILD"]
