"""Sink: plans that may give other rows in a second run are refused, and plans are told from each other."""

from ottla.pipeline.spark.sink.plan import Operator, fingerprint, objection

SOURCE = Operator(
    "StreamingRelationV2", 1, "StreamingRelationV2 Provider@798bf0ec, ottla, [subscribe=raw], [value#1]"
)


def project(text: str = "Project [value#1L AS key#2]") -> Operator:
    return Operator("Project", 0, text)


def test_a_plan_of_columns_and_filters_can_run_again() -> None:
    assert objection([project(), Operator("Filter", 1, "Filter (value#1 > 3)"), SOURCE]) is None


def test_a_random_expression_is_named() -> None:
    found = objection([Operator("Project", 0, "Project [...]", random=("uuid()",)), SOURCE])
    assert found is not None
    assert found[0] == "`uuid()` may give something else when a batch runs again."


def test_a_limit_is_refused() -> None:
    found = objection([Operator("GlobalLimit", 0, "GlobalLimit 5"), SOURCE])
    assert found is not None
    assert "`GlobalLimit 5` lets through the rows that happen to come first" in found[0]


def test_rows_dealt_out_in_turn_are_refused_and_rows_that_move_by_value_are_not() -> None:
    dealt = Operator("Repartition", 0, "Repartition 3, true", is_by_value=False, partitions=3)
    found = objection([dealt, SOURCE])
    assert found is not None
    assert "repartition(8, 'key')" in found[1]
    assert objection([dealt._replace(partitions=1), SOURCE]) is None
    assert (
        objection([Operator("RepartitionByExpression", 0, "RepartitionByExpression [key#1]"), SOURCE]) is None
    )


def test_two_runs_of_one_program_have_one_fingerprint() -> None:
    again = SOURCE._replace(text="StreamingRelationV2 Provider@1f, ottla, [subscribe=raw], [value#77]")
    assert fingerprint([project(), SOURCE]) == fingerprint([project("Project [value#77L AS key#80]"), again])
    lambdas = ["transform(a#1, lambdafunction(x_3#4, x_3#4))", "transform(a#9, lambdafunction(x_0#6, x_0#6))"]
    assert len({fingerprint([project(text)]) for text in lambdas}) == 1


def test_another_expression_operator_or_option_has_another_fingerprint() -> None:
    plans = [
        [project(), SOURCE],
        [project("Project [value#1L AS other#2]"), SOURCE],
        [project(), Operator("Filter", 1, "Filter (value#1 > 3)"), SOURCE],
        [project(), SOURCE._replace(text=SOURCE.text.replace("raw", "raw2"))],
    ]
    assert len({fingerprint(plan) for plan in plans}) == len(plans)
