"""How the command writes its log."""

import json
import logging
from datetime import UTC, datetime
from typing import Literal

COMMAND = "umbel"
ENGINE = "engine"
PROGRESS = "engine.progress"
"""The loggers of what the command says, of an engine's own log, and of how an engine comes up."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON.

    `time` is in UTC.  A request's line has the object `request` besides.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request := getattr(record, "request", None)) is not None:
            entry["request"] = request
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class TextFormatter(logging.Formatter):
    """Writes a record as a line; what the command says by itself, or an engine, has a name only."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        if record.name == COMMAND:
            return f"{COMMAND}: {record.getMessage()}"
        if record.name == ENGINE:
            return f"[{ENGINE}] {record.getMessage()}"
        if record.name == PROGRESS:
            return record.getMessage()
        return super().format(record)


def say(line: str) -> None:
    """Tell whoever started the command something."""
    logging.getLogger(COMMAND).info("%s", line)


def repeat_engine(line: str) -> None:
    """Repeat a line of an engine's own log."""
    logging.getLogger(ENGINE).info("%s", line)


def report_engine(line: str) -> None:
    """Tell how an engine comes up."""
    logging.getLogger(PROGRESS).info("%s", line)


def set_up_logs(log_format: Literal["text", "json"]) -> None:
    """Write the log of this process to standard error, in this format."""
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(
            TextFormatter("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
        )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
