import asyncio
import logging

import msgspec
import pytest
import zmq

from umbel_engine import EngineClient, EngineOptions, EngineStartError
from umbel_engine.handshake import Handshake, Registrations
from umbel_engine.mock import DEFAULT_READY, MockEngine
from umbel_engine.wire import Addresses, Init

encode = msgspec.msgpack.encode

ZERO, ONE = b"\x00\x00", b"\x01\x00"
HELLO = encode({"status": "HELLO", "local": False, "headless": True})
READY = encode({"status": "READY", "local": False, "headless": True})
REGISTRATION = encode({"max_model_len": 2048})
ADDRESSES = Addresses(["tcp://127.0.0.1:1"], ["tcp://127.0.0.1:2"])


class Replies(list):
    def __call__(self, identity, payload):
        self.append((identity, payload))


@pytest.fixture
def replies():
    return Replies()


@pytest.fixture
def handshake(replies):
    return Handshake(2, ADDRESSES, replies)


def test_every_hello_is_answered_once_with_the_addresses(handshake, replies):
    handshake.feed([ONE, HELLO])
    handshake.feed([ZERO, HELLO])
    assert replies == [(ONE, encode(Init(ADDRESSES))), (ZERO, encode(Init(ADDRESSES)))]


def test_it_is_done_when_all_are_ready(handshake):
    for identity in (ONE, ZERO):
        handshake.feed([identity, HELLO])
    for identity in (ZERO, ONE):
        assert not handshake.done
        handshake.feed([identity, READY])
    assert handshake.done


def test_all_engines_register():
    registrations = Registrations(2)
    for identity in (ONE, ZERO):
        assert not registrations.done
        registrations.feed([identity, REGISTRATION])
    assert registrations.done
    assert sorted(engine.index for engine in registrations.engines) == [0, 1]


def test_the_stage_tells_how_far_the_engines_are(handshake):
    assert handshake.stage == "0 of 2 engines have connected (HELLO)"
    handshake.feed([ZERO, HELLO])
    assert handshake.stage == "1 of 2 engines have connected (HELLO)"
    handshake.feed([ONE, HELLO])
    handshake.feed([ONE, READY])
    assert handshake.stage == (
        "all 2 engines have connected, 1 of them have loaded their model (READY)"
    )
    registrations = Registrations(2)
    registrations.feed([ZERO, REGISTRATION])
    assert registrations.stage == "1 of 2 engines have registered"


def greeted(handshake):
    handshake.feed([ZERO, HELLO])


@pytest.mark.parametrize(
    ("prepare", "frames", "reason"),
    [
        (greeted, [ZERO, HELLO], "engine 0 said HELLO twice"),
        (None, [ZERO, READY], "unexpected READY from engine 0"),
        (None, [ZERO, encode({"status": "BYE"})], "engine 0 sent status 'BYE'"),
        (None, [ZERO, b"\xc1"], "engine 0 sent no HELLO or READY"),
        (None, [ZERO, encode([1])], "engine 0 sent no HELLO or READY"),
        (None, [ZERO, HELLO, b""], "expected 2 frames, got 3"),
        (None, [ZERO], "expected 2 frames, got 1"),
    ],
)
def test_a_wrong_handshake_message_is_refused(handshake, prepare, frames, reason):
    if prepare is not None:
        prepare(handshake)
    with pytest.raises(EngineStartError, match=reason):
        handshake.feed(frames)


def test_a_second_ready_is_refused(handshake):
    greeted(handshake)
    handshake.feed([ZERO, READY])
    with pytest.raises(EngineStartError, match="unexpected READY from engine 0"):
        handshake.feed([ZERO, READY])


def test_one_engine_too_many_is_refused(replies):
    handshake = Handshake(1, ADDRESSES, replies)
    greeted(handshake)
    with pytest.raises(EngineStartError, match="engine 1 is not one of the 1 expected"):
        handshake.feed([ONE, HELLO])


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([ONE, REGISTRATION], "engine 1 is not one of the 1 expected"),
        ([ZERO, b""], "engine 0 sent no ready response"),
        ([ZERO, encode({"max_model_len": "long"})], "engine 0 sent no ready response"),
        ([ZERO, encode({})], "engine 0 sent no ready response"),
        ([ZERO], "expected 2 frames, got 1"),
    ],
)
def test_a_wrong_registration_is_refused(frames, reason):
    with pytest.raises(EngineStartError, match=reason):
        Registrations(1).feed(frames)


@pytest.mark.parametrize("count", [0, -1, 65537])
async def test_a_number_of_engines_that_cannot_be_is_refused(count):
    with pytest.raises(EngineStartError, match=f"must be in \\[1, 65536\\], got {count}"):
        EngineClient(EngineOptions(engine_count=count))


# Over real sockets.


async def test_engines_come_up_over_tcp_and_ipc(connect, address):
    client, _ = await connect(address=address, engines=2)
    assert [engine.index for engine in client.engines] == [0, 1]
    assert [engine.ready.data_parallel_rank for engine in client.engines] == [0, 1]
    assert client.engines[0].ready.vllm_version == "0.33.0"
    assert client.error is None


async def test_the_shortest_engine_decides_the_length(fan):
    async with EngineClient(EngineOptions(engine_count=2, ready_timeout=20)) as client:
        engines = [
            MockEngine(index=index, ready=msgspec.structs.replace(DEFAULT_READY, max_model_len=n))
            for index, n in enumerate((4096, 512))
        ]
        starts = [engine.start(client.handshake_address) for engine in engines]
        await asyncio.gather(client.wait_ready(), *starts)
        assert client.max_model_len == 512
        for engine in engines:
            await engine.close()


async def test_local_engines_talk_over_ipc_though_the_handshake_is_tcp():
    options = EngineOptions(local_engines=True, ready_timeout=20)
    async with EngineClient(options) as client, MockEngine().serve(client) as engine:
        assert client.handshake_address.startswith("tcp://127.0.0.1:")
        assert client._input_socket.get_string(zmq.LAST_ENDPOINT).startswith("ipc://")
        assert await client.call("get_supported_tasks") == [["generate"]]
        assert len(engine.utilities) == 1


@pytest.mark.parametrize("port", ["0", "*"])
async def test_a_free_port_is_found(port):
    async with EngineClient(EngineOptions(f"tcp://127.0.0.1:{port}")) as client:
        host, _, chosen = client.handshake_address.rpartition(":")
        assert host == "tcp://127.0.0.1"
        assert int(chosen) > 0


async def test_an_address_in_use_stops_the_start_with_its_name():
    async with EngineClient(EngineOptions()) as client:
        address = client.handshake_address
        with pytest.raises(EngineStartError, match=f"cannot listen for engines on {address}: "):
            EngineClient(EngineOptions(address))


async def test_engines_that_never_come_are_an_error_that_says_so():
    async with EngineClient(EngineOptions(engine_count=2, ready_timeout=0.05)) as client:
        with pytest.raises(
            EngineStartError, match=r"after 0.05 s: 0 of 2 engines have connected \(HELLO\)"
        ):
            await client.wait_ready()


async def test_an_engine_that_never_gets_ready_is_an_error_that_says_so():
    async with EngineClient(EngineOptions(ready_timeout=2)) as client:
        engine = MockEngine()
        waiting = asyncio.create_task(client.wait_ready())
        await engine.say_hello(client.handshake_address)
        with pytest.raises(EngineStartError, match=r"all 1 engines have connected, 0 of them"):
            await waiting
        await engine.close()


async def test_a_wrong_message_ends_the_wait_at_once(open_socket):
    async with EngineClient(EngineOptions(ready_timeout=60)) as client:
        stranger = open_socket(zmq.DEALER, ZERO)
        stranger.connect(client.handshake_address)
        stranger.send(b"\xc1garbage")
        with pytest.raises(EngineStartError, match="engine 0 sent no HELLO or READY"):
            await client.wait_ready()


async def test_progress_is_logged_while_engines_load(caplog):
    caplog.set_level(logging.INFO, "umbel_engine")
    options = EngineOptions(ready_timeout=20)
    async with EngineClient(options) as client, MockEngine().serve(client):
        pass
    messages = [record.getMessage() for record in caplog.records]
    assert "engine 0 has connected and loads its model" in messages
    assert "engine 0 is ready" in messages


async def test_using_a_client_before_its_engines_are_ready_is_an_error(open_samples):
    async with EngineClient(EngineOptions()) as client:
        assert client.engines == ()
        with pytest.raises(RuntimeError, match=r"await wait_ready\(\) first"):
            await open_samples(client, 1).__aenter__()


def test_someone_who_is_no_engine_is_ignored(handshake, replies):
    handshake.feed([b"\x00strange", b"GET / HTTP/1.1", b"more", b"frames"])
    greeted(handshake)
    assert handshake.stage.startswith("1 of 2 engines")


def test_a_message_that_is_nested_too_deeply_is_refused(handshake):
    deep = b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(EngineStartError, match="engine 0 sent no HELLO or READY"):
        handshake.feed([ZERO, deep])


async def test_closing_the_client_ends_the_wait_for_engines():
    client = EngineClient(EngineOptions())
    waiting = asyncio.ensure_future(client.wait_ready())
    await asyncio.sleep(0)
    client.close()
    async with asyncio.timeout(20):
        with pytest.raises(EngineStartError, match="closed"):
            await waiting


async def test_an_address_that_nobody_can_connect_to_is_refused():
    with pytest.raises(EngineStartError, match="no address to connect to"):
        EngineClient(EngineOptions("tcp://0.0.0.0:0"))


async def test_nothing_can_be_asked_before_the_engines_are_ready():
    async with EngineClient(EngineOptions()) as client:
        with pytest.raises(RuntimeError, match="not ready"):
            await client.call("is_sleeping")
        with pytest.raises(RuntimeError, match="not ready"):
            assert client.max_model_len
