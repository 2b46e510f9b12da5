"""What test_mutants.py has the runner of the mutants try; not collected by itself."""

import threading

from umbel_engine import EngineError


def test_that_notices():
    assert EngineError.__mro__[1] is Exception


def test_that_does_not_notice():
    assert issubclass(EngineError, Exception)


def test_that_hangs():
    if EngineError.__mro__[1] is not Exception:
        threading.Event().wait()
