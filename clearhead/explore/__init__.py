"""Explore: look at one pass of a run from every side, and change it on the way.

interventions (edits of a pass: a head silenced, a switch thrown) · readings (one text, as the three kinds of model read
it, in one pass) · worth (what each head and layer adds) · writing (free decoding, watched) · session (all of it for one
text, as the page asks for it) · wire (how it travels) · server, single_file (the page, served or in one file).
"""

from typing import TYPE_CHECKING

from clearhead.lazy import on_first_use

if TYPE_CHECKING:
    from clearhead.explore.single_file import page_of as page_of

__getattr__ = on_first_use(__name__, {"page_of": "single_file"})
