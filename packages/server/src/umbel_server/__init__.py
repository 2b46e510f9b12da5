"""An OpenAI-compatible HTTP server for vLLM engine cores, with parallel sampling at its heart."""

from umbel_server.app import create_app
from umbel_server.connections import Runner
from umbel_server.options import ServerOptions

__all__ = ["Runner", "ServerOptions", "create_app"]
