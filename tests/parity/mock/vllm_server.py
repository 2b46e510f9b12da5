"""Start vLLM's server on a machine without a GPU, for the Python of the engine's environment."""

import sys

import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

# Which platform it is would be read from the metadata of a package; there is only a source tree.
vllm.platforms._current_platform = CpuPlatform()
vllm.platforms._init_trace = "chosen"

if __name__ == "__main__":
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    ServeSubcommand.cmd(make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:]))
