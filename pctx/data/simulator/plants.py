"""Plants: trees, bushes and hedges, as trunks and clouds of small leafy ellipsoids.

A ray flies on inside a leafy ellipsoid until it meets a leaf, so that crowns are fluffy and
let some rays through. Everything stands at the origin.
"""

from __future__ import annotations

import numpy as np

from pctx.data.simulator.shapes import Kind, Shapes, Surface, join, make

VEGETATION, TRUNK = 70, 71


def tree(rng: np.random.Generator, clusters: int) -> Shapes:
    """Build a broad, a conical or a columnar tree with that many clusters of leaves."""
    form = rng.choice(3, p=[0.68, 0.17, 0.15])
    tall = rng.uniform(5, 14) if form != 2 else rng.uniform(5, 10)
    clear = (rng.uniform(1.2, 3.2), rng.uniform(0.2, 1.0), rng.uniform(0.5, 1.8))[form]
    broad = tall * (rng.uniform(0.22, 0.4), rng.uniform(0.14, 0.22), rng.uniform(0.1, 0.16))[form]
    radius = np.clip(tall * rng.uniform(0.011, 0.026), 0.07, 0.4)
    lean = rng.normal(0, 0.05, 2)
    bark = rng.uniform(0.22, 0.45)
    trunk = _trunk(rng, radius, clear + 0.35 * (tall - clear), lean, bark)

    # Clusters fill the crown's outline, more of them towards its skin.
    up = rng.uniform(0, 1, clusters)
    outline = (
        np.sqrt(np.maximum(1 - (2 * up - 0.85) ** 2 / 1.4, 0.05)),
        1.0 - 0.85 * up,
        np.sqrt(np.maximum(1 - (2 * up - 1) ** 2, 0.1)),
    )[form]
    angle = rng.uniform(0, 2 * np.pi, clusters)
    out = broad * outline * np.sqrt(rng.uniform(0.05, 1, clusters)) * 0.85
    z = clear + up * (tall - clear)
    center = np.stack(
        [out * np.cos(angle) + lean[0] * z, out * np.sin(angle) + lean[1] * z, z], axis=1
    )
    size = broad * rng.uniform(0.1, 0.45, clusters) * (20 / max(clusters, 9)) ** 0.33
    crown = _leaves(rng, center, size)
    return join([trunk, *_branches(rng, radius, clear, broad, lean, bark, form), crown])


def bush(rng: np.random.Generator, clusters: int) -> Shapes:
    """Build a bush 0.5 to 3 m high."""
    broad, tall = rng.uniform(0.4, 1.6), rng.uniform(0.5, 2.6)
    angle = rng.uniform(0, 2 * np.pi, clusters)
    out = broad * np.sqrt(rng.uniform(0, 1, clusters)) * 0.8
    z = tall * rng.uniform(0.15, 0.85, clusters)
    center = np.stack([out * np.cos(angle), out * np.sin(angle), z], axis=1)
    size = np.minimum(broad, tall) * rng.uniform(0.2, 0.5, clusters)
    return _leaves(rng, center, size)


def hedge(rng: np.random.Generator, length: float, tall: float, thick: float) -> Shapes:
    """Build a stretch of clipped hedge along x, `length` metres long."""
    core = make(
        Kind.BOX,
        (0, 0, tall * 0.44),
        (length / 2 + 0.05, thick * 0.36, tall * 0.45),
        VEGETATION,
        taper=(0, 0, 0.1),
        reflectance=0.37,
        surface=Surface.LEAVES,
        free_path=0.1,
    )
    count = max(4, int(length * tall * 3.5))
    center = np.stack(
        [
            rng.uniform(-length / 2, length / 2, count),
            thick * (rng.uniform(0.1, 0.42, count)) * rng.choice([-1, 1], count),
            tall * np.sqrt(rng.uniform(0.02, 1, count)),
        ],
        axis=1,
    )
    return join([core, _leaves(rng, center, rng.uniform(0.14, 0.38, count))])


def thicket(rng: np.random.Generator, broad: float, tall: float, clusters: int) -> Shapes:
    """Build undergrowth or a wood's edge: leaves from the ground up over a disc of 2 `broad` m."""
    angle = rng.uniform(0, 2 * np.pi, clusters)
    out = broad * np.sqrt(rng.uniform(0, 1, clusters))
    z = tall * rng.uniform(0.05, 0.9, clusters) ** 1.3
    center = np.stack([out * np.cos(angle), out * np.sin(angle), z], axis=1)
    return _leaves(rng, center, rng.uniform(0.5, 1.2, clusters) * min(1, tall / 4))


def _leaves(rng: np.random.Generator, center: np.ndarray, size: np.ndarray) -> Shapes:
    half = size[:, None] * rng.uniform(0.5, 1.4, (len(size), 3))
    half[:, 2] *= 0.8
    return make(
        Kind.ELLIPSOID,
        center,
        half,
        VEGETATION,
        yaw=rng.uniform(0, np.pi, len(size)),
        up=rng.normal((0, 0, 1), 0.5, (len(size), 3)),
        reflectance=np.clip(rng.normal(0.38, 0.05) + rng.normal(0, 0.04, len(size)), 0.1, 0.7),
        surface=Surface.LEAVES,
        free_path=np.maximum(size, 0.25) * rng.uniform(0.5, 1.5, len(size)),
    )


def _trunk(
    rng: np.random.Generator, radius: float, tall: float, lean: np.ndarray, bark: float
) -> Shapes:
    """Two tapered pieces with a bend between them."""
    low = tall * rng.uniform(0.35, 0.6)
    bend = lean + rng.normal(0, 0.05, 2)
    knee = np.array([*(lean * low), low])
    tip = knee + np.array([*(bend * (tall - low)), tall - low])
    foot = np.array([0.0, 0.0, -0.15])
    return make(
        Kind.CYLINDER,
        [(foot + knee) / 2, (knee + tip) / 2],
        [(radius, radius, (low + 0.15) / 2 + 0.02), (radius * 0.8, radius * 0.8, (tall - low) / 2)],
        TRUNK,
        up=[knee - foot, tip - knee],
        taper=[(0.2, 0, 0), (0.5, 0, 0)],
        reflectance=bark,
    )


def _branches(
    rng: np.random.Generator,
    radius: float,
    clear: float,
    broad: float,
    lean: np.ndarray,
    bark: float,
    form: int,
) -> list[Shapes]:
    if form == 1:
        return []
    count = int(rng.integers(2, 6))
    angle = rng.uniform(0, 2 * np.pi, count)
    spread = rng.uniform(0.3, 0.9, count)
    way = np.stack([spread * np.cos(angle), spread * np.sin(angle), np.ones(count)], axis=1)
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    long = broad * rng.uniform(0.5, 0.8, count)
    foot_z = clear * rng.uniform(0.8, 1.1, count)
    foot = np.stack([lean[0] * foot_z, lean[1] * foot_z, foot_z], axis=1)
    thin = radius * rng.uniform(0.3, 0.5, count)
    return [
        make(
            Kind.CYLINDER,
            foot + way * long[:, None] / 2,
            np.stack([thin, thin, long / 2], axis=1),
            TRUNK,
            up=way,
            taper=(0.5, 0, 0),
            reflectance=bark,
        )
    ]
