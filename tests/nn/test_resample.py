import torch
import torch.nn.functional as F

from pctx.geometry.hierarchy import Level
from pctx.geometry.pooling import Pooling
from pctx.nn.resample import PoolDown, UnpoolJoin, pool_max, unpool

# Coarse row 0 holds fine rows 4 and 1, row 1 holds 0, row 2 holds 2, 3 and 5.
POOLING = Pooling(
    cluster=torch.tensor([1, 0, 2, 2, 0, 2]),
    order=torch.tensor([4, 1, 0, 2, 3, 5]),
    starts=torch.tensor([0, 2, 3, 6]),
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


def test_the_step_down_is_linear_maximum_norm_gelu():
    torch.manual_seed(0)
    step, feat = PoolDown(3, 5).eval(), torch.randn(6, 3)
    nowhere = torch.zeros(6, 3)
    level = Level(
        coord=nowhere,
        grid_coord=nowhere.long(),
        offsets=torch.tensor([0, 6]),
        pooling=POOLING,
    )
    torch.testing.assert_close(
        step(feat, level), F.gelu(step.norm(pool_max(step.linear(feat), POOLING)))
    )


def test_the_join_is_the_sum_of_both_branches_and_shows_the_skip():
    torch.manual_seed(0)
    join, coarse, fine = UnpoolJoin(4, 3, 5).eval(), torch.randn(3, 4), torch.randn(6, 3)
    feat, skip = join(coarse, fine, POOLING)
    torch.testing.assert_close(skip, join.skip(fine))
    torch.testing.assert_close(feat, skip + join.up(coarse)[POOLING.cluster])
