"""Where a ray from the origin enters and leaves a unit solid, in closed form.

n ray and shape pairs. A ray is p(t) = start + t * step in the shape's frame, with t in metres.
"""

from __future__ import annotations

import numpy as np

from pctx.data.simulator.shapes import Kind, Shapes

_PARALLEL = 1e-9
_STEEP = 1e-12


def local_rays(
    shapes: Shapes, index: np.ndarray, direction: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give `start` and `step` (n, 3) of rays from the origin in the frames of shapes[index]."""
    frame = shapes.axes / shapes.half[:, :, None]
    start = -np.einsum("mij,mj->mi", frame, shapes.center)
    frame = frame.astype(direction.dtype)
    start = start.astype(direction.dtype)
    return start[index], np.einsum("nij,nj->ni", frame[index], direction)


def span(
    kind: np.ndarray, taper: np.ndarray, start: np.ndarray, step: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give the t at which rays enter and leave (n,); enter > leave where they miss."""
    enter = np.empty(len(kind), dtype=start.dtype)
    leave = np.empty(len(kind), dtype=start.dtype)
    for which, cut in (
        (Kind.ELLIPSOID, _ellipsoid),
        (Kind.BOX, _box),
        (Kind.CYLINDER, _cylinder),
    ):
        here = np.flatnonzero(kind == which)
        if len(here):
            enter[here], leave[here] = cut(taper[here], start[here], step[here])
    return enter, leave


def normals(kind: np.ndarray, taper: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Give the outward normals (n, 3) at points on unit solids, in the shapes' frames.

    They are gradients, of any length: a world normal is `axes.T @ (normal / half)`, normalised.
    """
    rise = (point[:, 2] + 1) / 2
    normal = point.copy()  # an ellipsoid's

    here = np.flatnonzero(kind == Kind.BOX)
    slack, gradient = _box_faces(taper[here], point[here])
    nearest = slack.argmin(axis=1)
    normal[here] = gradient[np.arange(len(here)), nearest]

    here = np.flatnonzero(kind == Kind.CYLINDER)
    p, lean = point[here], taper[here, 0]
    radius = 1 - lean * rise[here]
    side = np.stack([p[:, 0], p[:, 1], lean / 2 * radius], axis=1)
    cap = np.stack([0 * lean, 0 * lean, np.sign(p[:, 2])], axis=1)
    on_cap = 1 - np.abs(p[:, 2]) < radius - np.hypot(p[:, 0], p[:, 1])
    normal[here] = np.where(on_cap[:, None], cap, side)
    return normal


def _ellipsoid(
    taper: np.ndarray, start: np.ndarray, step: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    # By the point of closest approach, which loses no digits for a far shape.
    speed = (step * step).sum(1)
    middle = -(start * step).sum(1) / speed
    near = start + middle[:, None] * step
    return _about(middle, (1 - (near * near).sum(1)) / speed)


def _box(taper: np.ndarray, start: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    enter = np.full(len(start), -np.inf, dtype=start.dtype)
    leave = np.full(len(start), np.inf, dtype=start.dtype)
    tilt = taper.astype(start.dtype) / 2
    for axis, sign, slope in (
        (2, 1, None),
        (2, -1, None),
        (0, 1, tilt[:, 0]),
        (0, -1, tilt[:, 1]),
        (1, 1, tilt[:, 2]),
        (1, -1, tilt[:, 2]),
    ):
        # The face is the plane sign * p[axis] + slope * (p[2] + 1) = 1.
        rate, room = sign * step[:, axis], 1 - sign * start[:, axis]
        if slope is not None:
            rate, room = rate + slope * step[:, 2], room - slope * (start[:, 2] + 1)
        rate = np.where(np.abs(rate) < _PARALLEL, np.asarray(_PARALLEL, rate.dtype), rate)
        t = room / rate
        enter = np.where(rate < 0, np.maximum(enter, t), enter)
        leave = np.where(rate > 0, np.minimum(leave, t), leave)
    return enter, leave


def _cylinder(
    taper: np.ndarray, start: np.ndarray, step: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    # A ray along the side of a cone leaves few digits: in float64 there are enough.
    lean, start, step = taper[:, 0] / 2, start.astype(np.float64), step.astype(np.float64)
    # x² + y² - w² <= 0 with w = 1 - lean (z + 1), which is above 0 between the caps.
    w, dw = 1 - lean * (start[:, 2] + 1), -lean * step[:, 2]
    a = step[:, 0] ** 2 + step[:, 1] ** 2 - dw**2
    b = step[:, 0] * start[:, 0] + step[:, 1] * start[:, 1] - dw * w
    flat = np.where(a < _STEEP, 1, a)
    middle = -b / flat
    x = start[:, 0] + middle * step[:, 0]
    y = start[:, 1] + middle * step[:, 1]
    enter, leave = _about(middle, ((w + middle * dw) ** 2 - x**2 - y**2) / flat)
    steep = np.flatnonzero(a < _STEEP)
    if len(steep):
        enter[steep], leave[steep] = _within_cone(lean[steep], start[steep], step[steep])
    climb = step[:, 2]
    climb = np.where(np.abs(climb) < _PARALLEL, _PARALLEL, climb)
    low, high = (-1 - start[:, 2]) / climb, (1 - start[:, 2]) / climb
    enter = np.maximum(enter, np.minimum(low, high))
    return enter, np.minimum(leave, np.maximum(low, high))


def _within_cone(
    lean: np.ndarray, start: np.ndarray, step: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give the part of rays steeper than the side that is within it; it has one end or none."""
    w, dw = 1 - lean * (start[:, 2] + 1), -lean * step[:, 2]
    a = np.minimum((step[:, :2] ** 2).sum(1) - dw**2, -_STEEP)
    b = (step[:, :2] * start[:, :2]).sum(1) - dw * w
    square = b * b - a * ((start[:, :2] ** 2).sum(1) - w**2)
    root = np.sqrt(np.maximum(square, 0))
    first, second = (-b + root) / a, (-b - root) / a
    never = square <= 0  # it stays inside
    enter = np.where(never | (dw <= 0), -np.inf, second)
    leave = np.where(never | (dw > 0), np.inf, first)
    return enter, leave


def _about(middle: np.ndarray, square: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give middle -+ sqrt(square); an interval turned inside out where square <= 0."""
    root = np.sqrt(np.maximum(square, 0))
    miss = ~(square > 0)
    enter, leave = middle - root, middle + root
    enter[miss], leave[miss] = np.inf, -np.inf
    return enter, leave


def _box_faces(taper: np.ndarray, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give how far inside its six faces a point lies (n, 6), and their gradients (n, 6, 3)."""
    n = len(point)
    slack = np.empty((n, 6), dtype=point.dtype)
    gradient = np.zeros((n, 6, 3), dtype=point.dtype)
    for face, (axis, sign, which) in enumerate(
        ((2, 1, None), (2, -1, None), (0, 1, 0), (0, -1, 1), (1, 1, 2), (1, -1, 2))
    ):
        slope = 0 if which is None else taper[:, which] / 2
        slack[:, face] = np.abs(1 - sign * point[:, axis] - slope * (point[:, 2] + 1))
        gradient[:, face, axis] = sign
        gradient[:, face, 2] += slope
    return slack, gradient
