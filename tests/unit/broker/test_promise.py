"""A promise of a response: completed, failed, or abandoned with everything that it waits for."""

from ottla.broker.promise import Promise, completed


def test_then_abandons_the_promise_that_its_function_returned() -> None:
    abandoned: list[str] = []
    inner: Promise[int] = Promise(lambda: abandoned.append("inner"))
    outer: Promise[int] = completed(1).then(lambda value: inner)
    outer.abandon()
    assert abandoned == ["inner"]


def test_then_calls_its_function_after_it_was_abandoned_for_its_effects() -> None:
    called: list[int] = []
    first: Promise[int] = Promise()
    outer = first.then(called.append)
    outer.abandon()
    first.complete(1)
    assert called == [1]


def test_an_abandoned_then_cancels_the_operation_that_its_function_starts() -> None:
    seen: list[object] = []
    first: Promise[int] = Promise()
    delayed: Promise[int] = Promise(lambda: seen.append("cancelled"))
    outer: Promise[int] = first.then(lambda value: delayed)
    outer.subscribe(seen.append, seen.append)
    outer.abandon()
    first.complete(1)
    assert seen == ["cancelled"]


def test_cancel_returns_whether_the_value_may_still_come() -> None:
    computed: Promise[int] = Promise()
    assert computed.then(lambda value: value).cancel()
    delayed: Promise[int] = Promise(lambda: None)
    assert not delayed.then(lambda value: value).cancel()


def test_a_promise_that_waits_for_another_completes_and_fails_with_it() -> None:
    seen: list[object] = []
    inner: Promise[int] = Promise()
    outer: Promise[int] = completed(1).then(lambda value: inner)
    outer.subscribe(seen.append, seen.append)
    inner.complete(2)
    failing: Promise[int] = Promise()
    outer = completed(1).then(lambda value: failing)
    outer.subscribe(seen.append, seen.append)
    error = ValueError("no response")
    failing.fail(error)
    assert seen == [2, error]
