"""Visibilities, against their definitions written out."""

import pytest

from kvproto.visibility import Chunk, Full, Lossy, Sinks, SlidingWindow, parse_visibility


def seen(visibility, query, length=20):
    return [key for key in range(length) if visibility.sees(query, key)]


def test_what_a_query_sees():
    assert seen(Full(), 3) == [0, 1, 2, 3]
    assert seen(SlidingWindow(3), 7) == [5, 6, 7]
    assert seen(SlidingWindow(1), 7) == [7]
    assert seen(Sinks(2, 5), 9) == [0, 1, 7, 8, 9]
    assert seen(Sinks(2, 5), 3) == [0, 1, 2, 3]
    assert seen(Chunk(4), 6) == [4, 5, 6]
    assert seen(Lossy(), 2) == [0, 1, 2]


def test_narrowing():
    assert Full().narrowed(3) == SlidingWindow(3)
    assert SlidingWindow(8).narrowed(3) == SlidingWindow(3)
    assert SlidingWindow(3).narrowed(8) == SlidingWindow(3)
    assert Sinks(2, 8).narrowed(8) == Sinks(2, 8)
    assert Sinks(2, 8).narrowed(4) is None


@pytest.mark.parametrize("text", ["full", "window(8)", "sinks(2, 8)", "chunk(4)", "lossy"])
def test_notation_round_trips(text):
    assert str(parse_visibility(text)) == text


@pytest.mark.parametrize("text", ["", "window", "window(0)", "sinks(8, 8)", "chunk(x)", "full(1)"])
def test_bad_notation_is_refused(text):
    with pytest.raises(ValueError, match=r"write full|must be an int"):
        parse_visibility(text)
