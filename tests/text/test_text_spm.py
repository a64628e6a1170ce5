"""The SentencePiece merge loop against the obvious slow one."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.text.spm import SpmEncoder

BYTE_IDS = list(range(1000, 1256))


def _slow(text: str, scores: dict[str, float]) -> list[str]:
    symbols = list(text.replace(" ", "\u2581"))
    while True:
        pairs = [(-scores[a + b], place) for place, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in scores]
        if not pairs:
            return symbols
        _, place = min(pairs)
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


_pieces = st.dictionaries(
    st.text(alphabet="ab\u2581", min_size=1, max_size=4), st.sampled_from([-1.0, -2.0, -3.0]), max_size=40
)


@settings(max_examples=300)
@given(scores=_pieces, text=st.text(alphabet="ab c", max_size=25))
def test_heap_equals_the_slow_loop(scores: dict[str, float], text: str) -> None:
    ids = {piece: i for i, piece in enumerate(scores)}
    encoder = SpmEncoder(ids, list(scores.values()), BYTE_IDS, None)
    expected: list[int] = []
    for symbol in _slow(text, scores):
        expected += [ids[symbol]] if symbol in ids else [BYTE_IDS[byte] for byte in symbol.encode()]
    assert encoder.encode(text) == expected
    assert encoder.encode(text) == expected  # from memory


def test_characters_without_bytes_become_the_unknown_token() -> None:
    assert SpmEncoder({"a": 0}, [0.0], [None] * 256, 7).encode("aéa") == [0, 7, 0]
    assert SpmEncoder({"a": 0}, [0.0], [None] * 256, None).encode("aéa") == [0, 0]


def test_a_pair_that_arises_waits_for_better_ones() -> None:
    """Kind: a token once begun is grown, whatever the scores of other pairs say."""
    scores = {"ab": -1.0, "cd": -2.0, "abc": -3.0}
    encoder = SpmEncoder({piece: i for i, piece in enumerate(scores)}, list(scores.values()), BYTE_IDS, None)
    assert encoder.encode("abcd") == [0, 1]
