"""Parsers of what models write: reasoning and tool calls."""
