"""Text that is cut where tokens end that mean something."""

from hypothesis import given
from hypothesis import strategies as st

from umbel_text.watched import Piece, WatchedTokens

MARK = 1000


def test_text_is_one_piece_where_no_watched_token_comes() -> None:
    watched = WatchedTokens({MARK})
    for token_id, text in ((1, "a"), (2, "b")):
        watched.note(token_id, text, token_id)
    assert watched.cut("ab", [1, 2], is_last=False) is None


def test_a_piece_ends_where_a_watched_token_does() -> None:
    watched = WatchedTokens({MARK})
    for count, (token_id, text) in enumerate(((1, "a"), (MARK, "<m>"), (2, "b")), 1):
        watched.note(token_id, text, count)
    pieces = watched.cut("a<m>b", [1, MARK, 2], is_last=False)
    assert pieces == [Piece("a<m>", [1, MARK]), Piece("b", [2])]


def test_a_watched_token_waits_for_its_text_and_others_wait_for_it() -> None:
    watched = WatchedTokens({MARK})
    for count, (token_id, text) in enumerate(((1, "a"), (MARK, "<m>"), (2, "b")), 1):
        watched.note(token_id, text, count)
    assert watched.cut("a<", [1, MARK, 2], is_last=False) == [Piece("a<", [1])]
    assert watched.cut("m", [], is_last=False) == [Piece("m", [])]
    assert watched.cut(">b", [], is_last=False) == [Piece(">", [MARK]), Piece("b", [2])]


def test_a_watched_token_whose_text_was_cut_off_is_one_like_any_other() -> None:
    watched = WatchedTokens({MARK})
    for count, (token_id, text) in enumerate(((1, "a"), (MARK, "<m>")), 1):
        watched.note(token_id, text, count)
    assert watched.cut("a<", [1, MARK], is_last=True) == [Piece("a<", [1, MARK])]


def test_a_watched_token_without_a_text_cuts_nothing() -> None:
    watched = WatchedTokens({MARK})
    watched.note(MARK, "", 1)
    watched.note(1, "a", 2)
    assert watched.cut("a", [MARK, 1], is_last=True) is None


def cut(
    watched: WatchedTokens, text: str, token_ids: list[int], is_last: bool = False
) -> list[Piece]:
    pieces = watched.cut(text, token_ids, is_last)
    return [Piece(text, token_ids)] if pieces is None else pieces


TOKENS = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 9), st.text("ab<", max_size=3)),
        st.just((MARK, "<m>")),
    ),
    max_size=12,
)


@given(TOKENS, st.data())
def test_pieces_are_the_same_whenever_text_and_tokens_come_out(
    tokens: list[tuple[int, str]], data: st.DataObject
) -> None:
    text = "".join(piece for _, piece in tokens)
    watched = WatchedTokens({MARK})
    pieces: list[Piece] = []
    given_out, decoded = 0, ""
    pending: list[int] = []
    for count, (token_id, piece) in enumerate(tokens, 1):
        watched.note(token_id, piece, count)
        decoded += piece
        pending.append(token_id)
        if data.draw(st.booleans()):
            upto = data.draw(st.integers(given_out, len(decoded)))
            pieces += cut(watched, text[given_out:upto], pending)
            given_out, pending = upto, []
    pieces += cut(watched, text[given_out:], pending, is_last=True)
    assert "".join(piece.text for piece in pieces) == text
    assert [token_id for piece in pieces for token_id in piece.token_ids] == [
        token_id for token_id, _ in tokens
    ]
    # Every watched token ends a piece, with all of the text up to its own.
    ends, seen = set(), ""
    for token_id, piece in tokens:
        seen += piece
        if token_id == MARK:
            ends.add(len(seen))
    found, length = [], 0
    for piece in pieces:
        length += len(piece.text)
        assert MARK not in list(piece.token_ids)[:-1]
        if piece.token_ids and piece.token_ids[-1] == MARK:
            found.append(length)
    assert found == sorted(ends)
