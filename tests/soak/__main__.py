"""Ask a server for very much; `python -m tests.soak --help`."""

import argparse
import asyncio
import random
import sys
import tempfile

from umbel_engine.sample_model import prepare_sample_model

from .run import soak

WARM_UP = 0.2
"""Of the requests."""

MAY_GROW = 0.05
"""Of the memory after the warm-up: 7 MiB, or some 45 bytes a request of 160,000."""


def main():
    """Run a soak, print what it found; gives 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, help="the seed of a run that is to be repeated")
    parser.add_argument("--api-server-count", type=int, default=1, help="server processes (1)")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(
            soak(
                prepare_sample_model(),
                folder,
                requests=options.requests,
                warm_up=int(options.requests * WARM_UP),
                may_grow=MAY_GROW,
                seed=seed,
                processes=options.api_server_count,
                say=lambda line: print(line, flush=True),
            )
        )
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
