"""How the command writes its log."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal


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


def say(line: str) -> None:
    """Tell whoever started the command something, in one piece: others may write there, too."""
    sys.stderr.write(f"umbel: {line}\n")
    sys.stderr.flush()


def set_up_logs(log_format: Literal["text", "json"]) -> None:
    """Write the log of this process to standard error, in this format."""
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
        )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
