import torch
import torch.nn.functional as F

from pctx.geometry.hierarchy import Level
from pctx.geometry.neighbors import Neighborhood, knn
from pctx.geometry.pooling import Pooling
from pctx.nn.resample import PoolDown, UnpoolJoin, interpolate, pool_max, unpool

# Coarse row 0 holds fine rows 4 and 1, row 1 holds 0, row 2 holds 2, 3 and 5.
POOLING = Pooling(
    cluster=torch.tensor([1, 0, 2, 2, 0, 2]),
    order=torch.tensor([4, 1, 0, 2, 3, 5]),
    starts=torch.tensor([0, 2, 3, 6]),
)
LEVEL = Level(
    coord=torch.zeros(6, 3),
    grid_coord=torch.zeros(6, 3, dtype=torch.long),
    offsets=torch.tensor([0, 6]),
    pooling=POOLING,
)
MEMBERS = ([4, 1], [0], [2, 3, 5])


def test_pooling_takes_the_largest_of_each_cluster_and_teaches_it_alone():
    torch.manual_seed(0)
    feat = torch.randn(6, 3, requires_grad=True)
    pooled = pool_max(feat, POOLING)
    torch.testing.assert_close(pooled, torch.stack([feat[rows].amax(0) for rows in MEMBERS]))
    pooled.sum().backward()
    for rows in MEMBERS:
        assert (feat.grad[rows].sum(0) == 1).all()
        assert (feat.grad[rows].amax(0) == 1).all()


def test_unpooling_copies_each_coarse_row_to_its_cluster():
    coarse = torch.arange(3.0)[:, None]
    assert unpool(coarse, POOLING)[:, 0].tolist() == [1, 0, 2, 2, 0, 2]


def test_pooling_of_unpooled_rows_is_the_identity():
    coarse = torch.randn(3, 4)
    assert torch.equal(pool_max(unpool(coarse, POOLING), POOLING), coarse)


def test_interpolation_weighs_by_inverse_distance_and_is_exact_at_a_coarse_point():
    nearest = Neighborhood(
        index=torch.tensor([[0, 1, 2], [2, 0, 0]]),
        valid=torch.tensor([[True, True, True], [True, False, False]]),
        distance=torch.tensor([[1.0, 2.0, 4.0], [3.0, torch.inf, torch.inf]]),
    )
    feat = torch.tensor([[7.0], [14.0], [28.0]])
    mixed = (7 / 1 + 14 / 2 + 28 / 4) / (1 / 1 + 1 / 2 + 1 / 4)
    torch.testing.assert_close(interpolate(feat, nearest), torch.tensor([[mixed], [28.0]]))
    corners, ends = torch.eye(3), torch.tensor([0, 3])
    own = knn(corners, ends, 3, query=corners, query_offsets=ends)
    torch.testing.assert_close(interpolate(feat, own), feat, rtol=1e-6, atol=0)


def test_interpolation_between_no_points_is_zero():
    nobody = Neighborhood(
        index=torch.zeros(4, 3, dtype=torch.int64),
        valid=torch.zeros(4, 3, dtype=torch.bool),
        distance=torch.full((4, 3), torch.inf),
    )
    assert interpolate(torch.zeros(0, 5), nobody).tolist() == torch.zeros(4, 5).tolist()
    assert interpolate(torch.ones(2, 5), nobody).abs().max() == 0


def test_the_step_down_is_linear_maximum_norm_gelu():
    torch.manual_seed(0)
    step, feat = PoolDown(3, 5).eval(), torch.randn(6, 3)
    torch.testing.assert_close(
        step(feat, LEVEL), F.gelu(step.norm(pool_max(step.linear(feat), POOLING)))
    )


def test_the_join_is_the_sum_of_both_branches_and_shows_the_skip():
    torch.manual_seed(0)
    join, coarse, fine = UnpoolJoin(4, 3, 5).eval(), torch.randn(3, 4), torch.randn(6, 3)
    feat, skip = join.both(coarse, fine, LEVEL)
    assert torch.equal(feat, join(coarse, fine, LEVEL))
    torch.testing.assert_close(skip, join.skip(fine))
    torch.testing.assert_close(feat, skip + join.up(coarse)[POOLING.cluster])
