"""Seats of tasks: kept while their executor is there, and never given twice."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.spark.seats import Seat, Seats


def test_each_worker_of_each_executor_is_taken_once_when_there_are_as_many_sitters() -> None:
    seats = Seats()
    found = [seats.seat(sitter, ["a", "b"], 2) for sitter in range(4)]
    assert found == [Seat("a", 0), Seat("b", 0), Seat("a", 1), Seat("b", 1)]
    assert [seats.seat(sitter, ["b", "c", "a"], 2) for sitter in range(4)] == found


def test_any_place_will_do_when_all_seats_are_taken_or_there_are_no_executors() -> None:
    seats = Seats()
    assert [seats.seat(sitter, [], 2) for sitter in range(3)] == [Seat(None, 0), Seat(None, 1), Seat(None, 0)]
    assert [seats.seat(sitter, ["a"], 1) for sitter in range(2)] == [Seat("a", 0), Seat(None, 0)]


def test_only_its_sitters_move_when_an_executor_is_gone() -> None:
    seats = Seats()
    before = [seats.seat(sitter, ["a", "b"], 1) for sitter in range(2)]
    assert [seats.seat(sitter, ["b"], 1) for sitter in range(2)] == [Seat(None, 0), before[1]]
    assert [seats.seat(sitter, ["b", "c"], 1) for sitter in range(2)] == [Seat("c", 0), before[1]]


STEPS = st.lists(st.tuples(st.integers(0, 9), st.sets(st.sampled_from("abcd"))), max_size=40)


@given(steps=STEPS, slots=st.integers(1, 3))
@example(steps=[(0, {"a"}), (1, {"a", "b"}), (0, {"a"}), (0, {"b"})], slots=1)
def test_no_seat_has_two_sitters_whatever_executors_come_and_go(steps: list[tuple[int, set[str]]], slots: int) -> None:
    seats, held = Seats(), dict[int, Seat]()
    for sitter, locations in steps:
        held = {each: seat for each, seat in held.items() if seat.location in locations and each != sitter}
        found = seats.seat(sitter, locations, slots)
        assert 0 <= found.worker < slots
        if found.location is not None:
            assert found.location in locations
            assert found not in held.values()
            held[sitter] = found
        else:
            assert len(held) == slots * len(locations)
