"""A course in which you write the Transformer yourself: `clearhead learn start FOLDER`.

    from clearhead import learn

    learn.check("attention", my_attention)

says what is wrong with the smallest input that shows it, and what is likely the cause. Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from clearhead.lazy import on_first_use

if TYPE_CHECKING:  # the names of _HOME once more, because a type checker does not follow __getattr__
    from clearhead.learn.exercises import course as course
    from clearhead.learn.judge import check as check
    from clearhead.learn.verdict import Verdict as Verdict

_HOME = {"check": "judge", "course": "exercises", "Verdict": "verdict"}

__all__ = [*_HOME]
__getattr__ = on_first_use(__name__, _HOME)
