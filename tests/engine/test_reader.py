import asyncio
import itertools
import socket as plain_socket

import pytest
import zmq

from umbel_engine.reader import MESSAGES_PER_DRAIN, Reader

# In-process sockets deliver at once, so that what a drain finds is certain.


@pytest.fixture
def pipe(open_socket):
    pull, push = open_socket(zmq.PULL), open_socket(zmq.PUSH)
    pull.bind("inproc://pipe")
    push.connect("inproc://pipe")
    return pull, push


@pytest.fixture
def router_and_dealer(open_socket):
    router, dealer = open_socket(zmq.ROUTER), open_socket(zmq.DEALER, b"engine")
    router.bind("inproc://router")
    dealer.connect("inproc://router")
    return router, dealer


class Inbox:
    def __init__(self, expected):
        self.messages = []
        self.drains = []
        self.begun = asyncio.Event()
        self.complete = asyncio.Event()
        self._expected = expected

    def on_message(self, frames):
        self.messages.append(frames)
        self.begun.set()
        if len(self.messages) == self._expected:
            self.complete.set()

    def on_drained(self):
        self.drains.append(len(self.messages))

    async def wait(self):
        await asyncio.wait_for(self.complete.wait(), 10)


async def test_more_messages_than_one_drain_takes_all_arrive_in_order(pipe):
    pull, push = pipe
    inbox = Inbox(10 * MESSAGES_PER_DRAIN + 1)
    reader = Reader(pull, inbox.on_message, inbox.on_drained)
    sent = [[b"%d" % number] for number in range(10 * MESSAGES_PER_DRAIN + 1)]
    for frames in sent:
        push.send_multipart(frames)
    await inbox.wait()
    await asyncio.sleep(0)
    reader.close()
    assert inbox.messages == sent
    assert inbox.drains[-1] == len(sent)


async def test_a_drain_stops_at_its_limit_and_others_get_their_turn(pipe):
    pull, push = pipe
    inbox = Inbox(5 * MESSAGES_PER_DRAIN)
    seen_by_others = []
    loop = asyncio.get_running_loop()

    def other_work():
        seen_by_others.append(len(inbox.messages))
        if not inbox.complete.is_set():
            loop.call_soon(other_work)

    reader = Reader(pull, inbox.on_message)
    for _ in range(5 * MESSAGES_PER_DRAIN):
        push.send(b"")
    loop.call_soon(other_work)
    await inbox.wait()
    reader.close()
    steps = [after - before for before, after in itertools.pairwise(seen_by_others)]
    # The poller and the scheduled drain may both fall into one turn of the loop.
    assert max(steps) <= 2 * MESSAGES_PER_DRAIN
    assert len(set(seen_by_others)) >= 3


async def test_writers_are_not_starved_by_a_socket_that_is_never_empty(pipe):
    pull, push = pipe
    ours, theirs = plain_socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    written = asyncio.Event()
    inbox = Inbox(MESSAGES_PER_DRAIN)

    def on_message(frames):
        # Every message that is read is followed by another one.
        inbox.on_message(frames)
        push.send(b"")

    def on_writable():
        loop.remove_writer(ours)
        ours.send(b"x")
        written.set()

    reader = Reader(pull, on_message)
    push.send(b"")
    await inbox.wait()
    loop.add_writer(ours, on_writable)
    await asyncio.wait_for(written.wait(), 10)
    reader.close()
    assert theirs.recv(1) == b"x"
    ours.close()
    theirs.close()


async def test_a_message_from_before_the_reader_is_read(pipe):
    pull, push = pipe
    push.send(b"early")
    # This look uses the descriptor's edge up.
    assert pull.getsockopt(zmq.EVENTS) & zmq.POLLIN
    inbox = Inbox(1)
    reader = Reader(pull, inbox.on_message)
    await inbox.wait()
    reader.close()
    assert inbox.messages == [[b"early"]]


async def after_an_eaten_edge(router_and_dealer, wake):
    """Give what a reader has read a while after a send used up the edge of a message."""
    router, dealer = router_and_dealer
    inbox = Inbox(2)
    reader = Reader(router, inbox.on_message)
    dealer.send(b"hello")
    await asyncio.wait_for(inbox.begun.wait(), 10)
    dealer.send(b"again")
    router.send_multipart([b"engine", b"request"])
    # A send looks at what arrived only now and then; this look is a certain one.
    assert router.getsockopt(zmq.EVENTS) & zmq.POLLIN
    if wake:
        reader.wake()
    for _ in range(20):
        await asyncio.sleep(0)
    reader.close()
    return [payload for _, payload in inbox.messages]


async def test_a_send_that_eats_the_read_edge_loses_nothing(router_and_dealer):
    assert await after_an_eaten_edge(router_and_dealer, wake=True) == [b"hello", b"again"]


async def test_without_the_wake_that_message_would_stay_unread(router_and_dealer):
    assert await after_an_eaten_edge(router_and_dealer, wake=False) == [b"hello"]


async def test_the_drained_callback_comes_once_per_drain_and_only_after_a_message(pipe):
    pull, push = pipe
    inbox = Inbox(3)
    reader = Reader(pull, inbox.on_message, inbox.on_drained)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert inbox.drains == []
    for _ in range(3):
        push.send(b"")
    await inbox.wait()
    assert inbox.drains == [3]
    reader.close()


async def test_a_reader_closed_by_its_callback_reads_no_more(pipe):
    pull, push = pipe
    inbox = Inbox(2)

    def on_message(frames):
        inbox.on_message(frames)
        reader.close()
        reader.close()

    reader = Reader(pull, on_message)
    push.send(b"1")
    push.send(b"2")
    await asyncio.wait_for(inbox.begun.wait(), 10)
    reader.wake()
    for _ in range(10):
        await asyncio.sleep(0)
    assert inbox.messages == [[b"1"]]
