"""Work in threads."""

import threading

import pytest
import torch

from camp.core.parallel import single_threaded, threaded_map


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_are_in_order_and_at_most_lookahead_in_advance() -> None:
    taken: list[int] = []
    results = threaded_map(lambda n: n * n, (taken.append(n) or n for n in range(100)), lookahead=5)  # type: ignore[func-returns-value]
    assert next(results) == 0
    assert len(taken) == 6
    assert list(results) == [n * n for n in range(1, 100)]


def test_the_number_of_threads_is_as_before() -> None:
    inside = list(threaded_map(lambda _: (torch.get_num_threads(), threading.get_ident()), range(3)))
    assert {threads for threads, _ in inside} == {1}
    assert threading.get_ident() not in {thread for _, thread in inside}
    assert torch.get_num_threads() == 2


def test_an_error_is_raised_where_its_result_would_be() -> None:
    results = threaded_map(lambda n: 1 // n, [1, 0])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_operations_have_one_thread_and_pieces_of_work_as_many_as_before() -> None:
    both = threading.Barrier(2, timeout=20)  # passed only if two pieces of work are under way at once
    with single_threaded():
        assert torch.get_num_threads() == 1
        with single_threaded():
            assert list(threaded_map(lambda n: (both.wait(), n)[1], range(4))) == [0, 1, 2, 3]
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
