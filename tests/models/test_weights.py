import torch

from pctx.models.weights import compare


def weights(**shapes):
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


def test_equal_names_and_shapes_are_no_difference():
    assert not compare(weights(a=(2, 3), b=()), weights(b=(), a=(2, 3)))


def test_each_kind_is_counted_and_the_first_named():
    difference = compare(weights(a=(2,), b=(3,), c=(4,), d=()), weights(a=(5,), d=(), e=(6,)))
    assert difference
    assert difference.num_new == 3
    assert str(difference) == (
        "2 missing (b (3,), …); 1 unexpected (e (6,)); 1 of another shape (a (5,) for (2,))"
    )


def test_a_report_is_short_however_much_differs():
    many = {f"w{i}": (i,) for i in range(100)}
    own = {**weights(**many), **weights(**{f"x{i}": (2,) for i in range(50)})}
    given = {**weights(**dict.fromkeys(many, (7, 7))), "y": torch.zeros(1)}
    lines = compare(own, given).lines()
    assert lines == [
        *(f"missing: x{i} (2,)" for i in range(3)),
        "missing: 47 more",
        "unexpected: y (1,)",
        *(f"of another shape: w{i} (7, 7) for ({i},)" for i in range(3)),
        "of another shape: 97 more",
    ]
