import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from foredraft.sampling import StopStrings


def cut_by_the_book(text, stops):
    """The text before the stop string that is complete first, the longest of those; None if there is none."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))]
    return None


def run(pieces, stops):
    """What was shown after each piece, whether a stop string was found, and the whole text at the end."""
    checker, shown, stopped = StopStrings(stops), [], False
    for piece in pieces:
        emitted, stopped = checker.push(piece)
        shown.append(emitted)
        if stopped:
            break
    return shown, stopped, "".join(shown) + checker.finish()


def splits(text, num_cuts):
    for cuts in itertools.combinations(range(len(text) + 1), num_cuts):
        edges = [0, *cuts, len(text)]
        yield [text[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    ("text", "stops", "kept"),
    [
        ("one two END three", ["END"], "one two "),
        ("END", ["END"], ""),
        ("ENEND x", ["END"], "EN"),
        ("aaab", ["aab"], "a"),
        ("say\n\nUser: hi", ["\nUser:", "\n\n\n"], "say\n"),
        ("x<|im_end|>y", ["<|im_end|>", "<|"], "x"),
        ("xabcd", ["abcd", "bc"], "xa"),
        ("xabc", ["bc", "abc"], "x"),
        ("naïve 🙂🙃 text", ["🙃"], "naïve 🙂"),
        ("a", ["a", "a"], ""),
    ],
)
def test_a_stop_string_is_found_however_it_is_split(text, stops, kept):
    assert cut_by_the_book(text, stops) == kept
    for num_cuts in (0, 1, 2):
        for pieces in splits(text, num_cuts):
            _, stopped, whole = run(pieces, stops)
            assert (stopped, whole) == (True, kept), pieces
    assert run(list(text), stops)[1:] == (True, kept)


def test_a_stop_string_at_the_start_of_a_long_piece_is_found():
    assert run(["ab##cdefghijklmnopqrstuvwxyz"], ["##"])[1:] == (True, "ab")


def test_a_beginning_that_comes_to_nothing_is_held_back_and_then_shown():
    shown, stopped, whole = run(["say E", "N", "x", "E"], ["END"])
    assert shown == ["say ", "", "ENx", ""]
    assert (stopped, whole) == (False, "say ENxE")


def test_nothing_comes_out_after_the_end():
    checker = StopStrings(["."])
    assert checker.push("One. Two.") == ("One", True)
    assert checker.stopped
    assert checker.push(" Three") == ("", True)
    assert checker.finish() == ""


def test_without_stop_strings_everything_passes_at_once():
    checker = StopStrings([])
    assert checker.push("any text") == ("any text", False)
    assert checker.push("") == ("", False)
    assert checker.finish() == ""


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopStrings(["a", ""])


# Two letters make overlaps, borders and false starts as common as can be.
letters = st.text("ab", max_size=14)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


@given(st.lists(letters, max_size=5), stop_lists)
def test_the_text_does_not_depend_on_how_it_is_split(pieces, stops):
    text = "".join(pieces)
    kept = cut_by_the_book(text, stops)
    expected = (False, text) if kept is None else (True, kept)
    assert run(pieces, stops)[1:] == expected
    assert run(list(text), stops)[1:] == expected


@given(letters, stop_lists)
def test_exactly_what_may_begin_a_stop_string_is_held_back(text, stops):
    checker, shown = StopStrings(stops), ""
    for num_read, letter in enumerate(text, start=1):
        emitted, stopped = checker.push(letter)
        shown += emitted
        if stopped:
            return
        beginnings = {stop[:length] for stop in stops for length in range(len(stop))}
        undecided = max((len(b) for b in beginnings if text[:num_read].endswith(b)), default=0)
        assert num_read - len(shown) == undecided


def test_the_held_text_stays_short_on_a_long_text_of_false_starts():
    stop = "a" * 50 + "b"
    checker, num_shown = StopStrings([stop]), 0
    for num_read in range(1, 100_001):
        num_shown += len(checker.push("a")[0])
        assert num_read - num_shown == min(num_read, 50)
    assert checker.push("b") == ("", True)
