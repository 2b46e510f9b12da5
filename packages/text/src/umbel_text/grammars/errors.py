"""Why a grammar is not handed on to the engine."""


class GrammarSyntaxError(Exception):
    """Report a grammar that the engine's compiler would not read, in its words where it has some."""


class UnservableError(Exception):
    """Report a grammar that the engine's compiler would read, and the engine suffer from."""
