"""Whole tokens of a vocabulary, as a grammar may name them."""

from umbel_text.grammars.forms import Form
from umbel_text.grammars.heads import EVERYTHING, any_of

LONGEST = 1024

A_TOKEN = Form(any_of(EVERYTHING), (), 0, EVERYTHING, 1, LONGEST, work=50)
"""A token, whatever its text; it ends where it ends."""
