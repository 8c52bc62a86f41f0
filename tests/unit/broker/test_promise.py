"""A promise of a response: completed, failed, or abandoned with everything that it waits for."""

from ottla.broker.promise import Promise, completed


def test_then_abandons_the_promise_that_its_function_returned() -> None:
    abandoned: list[str] = []
    inner: Promise[int] = Promise(lambda: abandoned.append("inner"))
    outer: Promise[int] = completed(1).then(lambda value: inner)
    outer.abandon()
    assert abandoned == ["inner"]


def test_then_does_not_call_its_function_after_it_was_abandoned() -> None:
    called: list[int] = []
    first: Promise[int] = Promise()
    outer = first.then(called.append)
    outer.abandon()
    first.complete(1)
    assert called == []


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
