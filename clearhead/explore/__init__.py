"""Explore: look at one pass of a run from every side, and change it on the way.

interventions (edits of a pass: a head silenced, a switch thrown) · readings (one text, as the three kinds of model read
it, in one pass) · worth (what each head and layer adds) · writing (free decoding, watched) · session (all of it for one
text, as the page asks for it) · wire (how it travels) · server, single_file (the page, served or in one file).
"""
