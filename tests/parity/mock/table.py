"""The table: the rows of every file of recorded answers."""

from . import (
    table_answers,
    table_failures,
    table_logprobs,
    table_refusals,
    table_routes,
    table_sampling,
    table_tools,
)

TABLE = {
    "answers": table_answers.ROWS,
    "sampling": table_sampling.ROWS,
    "logprobs": table_logprobs.ROWS,
    "failures": table_failures.ROWS,
    "refusals": table_refusals.ROWS,
    "routes": table_routes.ROWS,
    "tools": table_tools.ROWS,
}
