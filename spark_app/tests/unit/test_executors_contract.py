"""The classes that executors of task graphs derive from."""

from __future__ import annotations

import polars as pl
import pytest

from tidemill import Executor, StatelessExecutor
from tidemill.graphs.executor import Output, attributes_of, has_ended_early


class Keeps(Executor):
    """Has no `__init__` that calls its base's, as in the document of the interface, whose base refuses the call."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.rows = 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self.rows += sum(batch.height for batch in batches)
        if self.rows >= self.limit:
            self.early_termination()
        return None


def test_an_executor_goes_on_until_it_says_so_when_its_base_has_a_method_of_that_name() -> None:
    executor = Keeps(2)
    frame = pl.DataFrame({"a": [1]})

    executor.execute([frame], 0, 0)
    assert not has_ended_early(executor)
    executor.execute([frame], 0, 0)
    assert has_ended_early(executor)
    executor.early_termination()  # a flag of its own: the method is still there


def test_attributes_are_the_state_when_nothing_is_overridden() -> None:
    executor, copy = Keeps(5), Keeps(5)
    executor.execute([pl.DataFrame({"a": [1, 2, 3]})], 0, 0)
    executor.early_termination()

    copy.deserialize(executor.serialize())

    assert copy.rows == 3
    assert has_ended_early(copy)
    assert attributes_of(copy) == {"limit": 5, "rows": 3}


def test_nothing_is_sent_at_the_end_when_done_is_not_overridden() -> None:
    assert Keeps(1).done(0) is None
    assert StatelessExecutor().serialize() is None


@pytest.mark.parametrize("kind", [Executor, StatelessExecutor])
def test_execute_must_be_written_when_a_class_derives(kind: type[Executor]) -> None:
    with pytest.raises(NotImplementedError):
        kind().execute([], 0, 0)
