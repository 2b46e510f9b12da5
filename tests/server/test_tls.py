"""HTTPS, spoken by the command itself."""

import asyncio
import json
import ssl

import aiohttp
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from umbel_engine.mock import MockStep

from .commands import CHAT, MESSAGES, TIMEOUT, finishes, open_stream, rest_of


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(authority, tmp_path_factory):
    """A certificate for this machine and its key, in a file each."""
    folder = tmp_path_factory.mktemp("certificate")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture
def trusting(authority):
    """A client's settings that trust the authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def secure(umbel, certificate, trusting):
    """Start `umbel serve` with a certificate."""

    async def secure(script, *flags, **options):
        file, key = certificate
        connector = aiohttp.TCPConnector(ssl=trusting)
        return await umbel(
            script,
            *("--ssl-certfile", file, "--ssl-keyfile", key, *flags),
            connector=connector,
            **options,
        )

    return secure


@pytest.mark.parametrize("processes", [1, 2])
async def test_answers_whole_and_streamed_are_served_over_https(secure, say, processes):
    served = await secure(lambda request: say("hi", "yo"), "--api-server-count", str(processes))
    assert served.url.startswith("https://127.0.0.1:")
    status, text = await served.ask(n=2)
    assert status == 200
    contents = [choice["message"]["content"] for choice in json.loads(text)["choices"]]
    assert contents == ["hiyo", "hiyo"]
    body = {"messages": MESSAGES, "n": 2, "stream": True}
    async with served.session.post(served.url + CHAT, json=body) as response:
        assert finishes(await rest_of(response)).count("length") == 2
    served.tell()
    assert await served.exit() == 0


async def test_a_client_that_goes_aborts_its_samples(secure, say):
    served = await secure(lambda request: say("hi", "yo"), paused=True)
    response = await open_stream(served)
    response.close()
    assert await served.engine.wait_aborts() == [[add.request_id for add in served.engine.adds]]


async def test_a_client_that_does_not_read_is_cut_off_whoever_came_and_went(
    secure, token, trusting
):
    words = [token(" London")] * 1500
    served = await secure(
        lambda request: [MockStep(token_ids=words) for _ in range(1200)],
        *("--client-write-timeout", "0.3"),
    )
    # asyncio's transport of a connection that is over tells nothing of its buffer.
    async with served.session.get(
        f"{served.url}/health", headers={"Connection": "close"}
    ) as answer:
        assert answer.status == 200
    port = int(served.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, limit=1)
    body = json.dumps({"messages": MESSAGES, "stream": True}).encode()
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (CHAT.encode(), len(body), body)
    )
    await served.line("a client has read nothing for 0.3 s and is cut off")
    await served.engine.wait_aborts()
    writer.transport.abort()
    served.tell()
    assert await served.exit() == 0
    assert "Traceback" not in "".join(served.lines)


async def test_clients_that_go_leave_no_fault_behind(secure, say):
    served = await secure(lambda request: say(*["hi"] * 10_000), step_seconds=0.001)
    for _ in range(20):
        body = {"messages": MESSAGES, "stream": True, "max_tokens": 1900}
        response = await served.session.post(served.url + CHAT, json=body)
        await response.content.readany()
        response.close()
    await served.engine.wait_aborts(20)
    served.tell()
    assert await served.exit() == 0
    assert "ERROR" not in "".join(served.lines)


async def test_a_client_that_speaks_plain_http_is_told_no_more_than_that(secure, say):
    served = await secure(lambda request: say("hi"))
    port = int(served.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), TIMEOUT)
    assert b"HTTP/1.1 200" not in answer
    writer.close()
    status, _ = await served.ask()
    assert status == 200
    served.tell()
    assert await served.exit() == 0
    assert "Traceback" not in "".join(served.lines)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_versions_of_tls_are_refused(secure, say, trusting):
    served = await secure(lambda request: say("hi"))
    port = int(served.url.rpartition(":")[2])
    trusting.minimum_version = ssl.TLSVersion.TLSv1
    trusting.maximum_version = ssl.TLSVersion.TLSv1_1
    trusting.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", port, ssl=trusting)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--ssl-certfile", "nowhere.pem"], "--ssl-certfile nowhere.pem: there is no such file."),
        (["--ssl-keyfile", "KEY"], "--ssl-keyfile needs --ssl-certfile."),
        (["--ssl-certfile", "CERT", "--ssl-keyfile", "none.pem"], "--ssl-keyfile none.pem: there"),
        (["--ssl-certfile", "CERT"], "certificate and key cannot be used"),
        (["--ssl-certfile", "KEY", "--ssl-keyfile", "KEY"], "certificate and key cannot be used"),
        (
            ["--ssl-certfile", "CERT", "--ssl-keyfile", "OTHER"],
            "certificate and key cannot be used",
        ),
        (["--ssl-certfile", "CERT", "--ssl-keyfile", "LOCKED"], "the key has no password"),
    ],
)
@pytest.mark.parametrize("processes", ["1", "2"])
async def test_what_cannot_be_used_is_said_in_a_line_before_an_engine_is_waited_for(
    run, model_folder, certificate, authority, tmp_path, flags, message, processes
):
    other = tmp_path / "other.pem"
    authority.issue_cert("localhost").private_key_pem.write_to_path(str(other))
    locked = tmp_path / "locked.pem"
    key = serialization.load_pem_private_key(other.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    files = {"CERT": certificate[0], "KEY": certificate[1], "OTHER": other, "LOCKED": locked}
    process = await run(
        *("umbel", "serve", model_folder, "--port", "0", "--data-parallel-size-local", "0"),
        *("--api-server-count", processes, *(files.get(flag, flag) for flag in flags)),
    )
    assert await process.exit() == 1
    (line,) = process.lines
    assert line.startswith("umbel: ")
    assert message in line
