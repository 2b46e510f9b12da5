"""Whole tokens of a vocabulary, as a grammar may name them."""

from umbel_text.grammars.forms import EVERYTHING, Form

LONGEST = 1024

A_TOKEN = Form(EVERYTHING, 0, EVERYTHING, 1, LONGEST, work=50, second=EVERYTHING)
"""A token, whatever its text; it ends where it ends."""
