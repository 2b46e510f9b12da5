"""The command `umbel-mock-engine`: engines that answer without a model.

It joins a frontend that waits for engines started elsewhere, and answers every request with
random token ids up to its max_tokens, or as the rules of a scenario say.  Like the real engine it
is silent on an ABORT.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from umbel_engine import mock_scenario
from umbel_engine.mock_process import FrontendGoneError, MockOptions, MockProcess
from umbel_engine.mock_scenario import Scenario

logger = logging.getLogger(__name__)

_DEFAULTS = MockOptions()


class _StoppedError(Exception):
    """A signal has asked the process to stop."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit status."""
    parsed = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="mock engine: %(message)s", stream=sys.stderr)
    try:
        scenario = Scenario() if parsed.scenario is None else Scenario.read(parsed.scenario)
    except (OSError, ValueError) as error:
        logger.error("the scenario cannot be used: %s", error)
        return 2
    options = MockOptions(**{name: getattr(parsed, name) for name in MockOptions.__struct_fields__})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    return _serve(options, scenario)


def _serve(options: MockOptions, scenario: Scenario) -> int:
    process = MockProcess(options, scenario)
    try:
        process.connect()
        logger.info("%d ready", options.engine_count)
        process.run()
        logger.info("the frontend is gone")
    except _StoppedError:
        return 0
    except (FrontendGoneError, ValueError) as error:
        logger.error("%s", error)
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        process.close()
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    raise _StoppedError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="umbel-mock-engine",
        description=__doc__,
        epilog=mock_scenario.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--handshake-address", default=_DEFAULTS.handshake_address, metavar="ADDRESS",
        help="where the frontend waits for engines (%(default)s)")  # fmt: skip
    add("--engine-count", type=_positive, default=_DEFAULTS.engine_count, metavar="N",
        help="how many engines to be, with the ranks 0 to N-1 (%(default)s)")  # fmt: skip
    add("--output-token-chunk-size", type=_positive, metavar="N",
        default=_DEFAULTS.output_token_chunk_size,
        help="tokens per step of a request, like speculative decoding (%(default)s)")  # fmt: skip
    add("--vocab-size", type=_positive, default=_DEFAULTS.vocab_size, metavar="N",
        help="token ids are drawn from 0 to N-1 (%(default)s)")  # fmt: skip
    add("--max-model-len", type=_positive, default=_DEFAULTS.max_model_len, metavar="N",
        help="where a request without max_tokens ends (%(default)s)")  # fmt: skip
    add("--seed", type=int, default=_DEFAULTS.seed, metavar="N",
        help="what random token ids depend on, with the request's seed or id (%(default)s)")  # fmt: skip
    add("--step-ms", type=_duration, default=_DEFAULTS.step_ms, metavar="MS",
        help="time from one step to the next; 0 is as fast as it goes (%(default)s)")  # fmt: skip
    add("--scenario", type=Path, metavar="FILE", help="a JSON file of rules; see below")
    add("--log-requests", action="store_true", help="write a line for each request")
    add("--log-stats", action="store_true", help="send statistics of the scheduler with each step")
    add("--exit-after", type=_duration, default=_DEFAULTS.exit_after, metavar="SECONDS",
        help="how long to wait for a frontend that is gone (%(default)s)")  # fmt: skip
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _duration(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no duration")
    return value


if __name__ == "__main__":
    sys.exit(main())
