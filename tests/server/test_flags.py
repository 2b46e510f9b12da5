"""What the values of flags may be."""

import pytest

from umbel_server.cli import make_parser, settings_of


def settings(*flags):
    return settings_of(make_parser().parse_args(["serve", *flags]), (), {})


def test_without_flags_nothing_is_refused_but_what_would_fill_the_server():
    given = settings()
    assert (given.max_num_queued_reqs, given.max_num_queued_tokens) == (None, None)
    assert given.max_concurrent_sequences == 65536
    assert given.client_write_timeout == 120
    assert (given.sse_keep_alive_interval, given.engine_stall_timeout) == (0, 0)
    assert (given.log_requests, given.log_format) == (False, "text")
    assert (given.ssl_certfile, given.ssl_keyfile) == (None, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("4096", 4096), ("64k", 64_000), ("64K", 65_536), ("1.5m", 1_500_000)],
)
def test_a_number_of_tokens_may_be_short(text, number):
    assert settings("--max-num-queued-tokens", text).max_num_queued_tokens == number


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--max-num-queued-reqs", "-1"),
        ("--max-num-queued-reqs", "many"),
        ("--max-num-queued-reqs", "1.5"),
        ("--max-concurrent-sequences", "9" * 30),
        ("--max-num-queued-tokens", "1.5K"),
        ("--max-num-queued-tokens", "-1"),
        ("--client-write-timeout", "-1"),
        ("--client-write-timeout", "nan"),
        ("--sse-keep-alive-interval", "inf"),
        ("--shutdown-timeout", "soon"),
        ("--log-format", "xml"),
    ],
)
def test_what_is_no_value_is_refused_by_name(flag, text, capsys):
    with pytest.raises(SystemExit) as caught:
        settings(f"{flag}={text}")
    assert caught.value.code == 2
    assert f"argument {flag}: " in capsys.readouterr().err
