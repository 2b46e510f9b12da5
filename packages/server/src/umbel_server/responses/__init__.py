"""The bodies and events of answers, field for field those of vLLM's Python server."""
