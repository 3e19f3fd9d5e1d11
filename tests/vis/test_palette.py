import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pctx.vis import palette
from pctx.vis.palette import (
    ASPRS,
    DISTINCT,
    UNLABELED,
    Ramp,
    class_colors,
    id_colors,
    ramp_colors,
)


def test_a_class_keeps_its_colour_whatever_classes_are_present(labels):
    every = class_colors(np.arange(4), labels)
    assert every.tolist() == [list(color) for color in labels.colors]
    for present in ([3], [1, 3], [0, 2, 3]):
        assert (class_colors(np.array(present), labels) == every[present]).all()


def test_no_class_is_grey(labels):
    assert class_colors(np.array([-1]), labels).tolist() == [list(UNLABELED)]


@pytest.mark.parametrize("label", [-2, 4])
def test_a_number_that_is_no_class_is_refused(label, labels):
    with pytest.raises(ValueError, match="4 classes"):
        class_colors(np.array([0, label]), labels)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.integers(0, 10**9))
def test_an_id_keeps_its_colour_whatever_ids_are_present(ids, more):
    alone = id_colors(np.array(ids))
    assert (id_colors(np.array([*ids, more]))[: len(ids)] == alone).all()


def test_the_first_ids_are_told_apart():
    color = id_colors(np.arange(24)).astype(int)
    apart = np.abs(color[:, None] - color[None]).sum(axis=2)
    assert apart[~np.eye(24, dtype=bool)].min() > 20


def test_colours_of_neighbours_are_well_apart():
    color = np.array([*DISTINCT, UNLABELED])
    apart = np.abs(color[:, None] - color[None]).sum(axis=2)
    assert apart[~np.eye(len(color), dtype=bool)].min() > 80


@pytest.mark.parametrize("ramp", Ramp)
def test_a_ramp_runs_from_its_first_to_its_last_corner(ramp):
    color = ramp_colors(np.array([-1.0, 0.0, 1.0, 2.0, np.nan]), ramp).astype(int)
    assert np.abs(color[:2] - ramp.value[0]).max() <= 1  # two roundings, there and back
    assert np.abs(color[2:4] - ramp.value[-1]).max() <= 1
    assert tuple(color[4]) == UNLABELED


def test_asprs_names_the_codes_of_the_las_specification():
    assert [ASPRS.names[ASPRS.encode(np.array([code]))[0]] for code in (2, 6, 9, 17)] == [
        "ground",
        "building",
        "water",
        "bridge deck",
    ]


# Machado et al. 2009, "A physiologically-based model for simulation of color vision deficiency",
# severity 1.
LACKING = {
    "red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
}


def apart(colors, lacking) -> float:
    """Give the smallest difference of two colours in OKLab, to eyes without these cones."""
    x = np.array(colors, dtype=float) / 255
    linear = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.array(LACKING[lacking]).T, 0, 1)
    x = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    lab = palette._lab(255 * x)
    distance = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
    return float(distance[~np.eye(len(lab), dtype=bool)].min())


@pytest.mark.parametrize("lacking", LACKING)
def test_own_colours_are_told_apart_without_red_or_green_cones(lacking):
    assert apart(DISTINCT, lacking) > 0.1
    assert apart(id_colors(np.arange(12)), lacking) > 0.1
    common = [ASPRS.colors[code] for code in (1, 2, 3, 4, 5, 6, 9, 17)]
    assert apart(common, lacking) > 0.06
    judged = (palette.RIGHT, palette.WRONG, palette.NOT_COUNTED)
    assert apart(judged, lacking) > 0.15


@pytest.mark.parametrize("ramp", [Ramp.HEIGHT, Ramp.INTENSITY, Ramp.ATTENTION])
def test_ramps_grow_lighter_from_end_to_end(ramp):
    light = palette._lab(ramp_colors(np.linspace(0, 1, 64), ramp).astype(float))[:, 0]
    assert (np.diff(light) > -0.004).all()  # a rounded colour may be a touch darker
