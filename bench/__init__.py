"""What a frontend costs: `python -m bench` measures umbel next to other frontends of vLLM's engine."""
