import pytest
import torch

from pctx.inference.memory import (
    MAX_VOXELS,
    MIN_VOXELS,
    available_memory,
    is_out_of_memory,
    parse_size,
    tile_limits,
    voxel_bytes,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4G", 4 << 30), ("500m", 500 << 20), ("1.5GiB", 3 << 29), ("2 kB", 2048), ("70", 70)],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "4X", "0", "4 G G", "nan"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="memory must be a size such as 4G"):
        parse_size(text)


def test_tiles_shrink_with_the_memory_in_steps_that_noise_does_not_change():
    sizes = [tile_limits(gib << 30, 64, 0.05).voxels for gib in (64, 8, 4, 2, 1)]
    assert sizes[0] == MAX_VOXELS
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]
    assert tile_limits(int(4.01 * 2**30), 64, 0.05) == tile_limits(4 << 30, 64, 0.05)
    assert tile_limits(1, 64, 0.05).voxels == MIN_VOXELS


def test_a_tile_takes_less_than_it_is_given():
    for gib in (1, 2, 4, 8):
        limits = tile_limits(gib << 30, 64, 0.05)
        assert limits.voxels > MIN_VOXELS
        assert limits.voxels * voxel_bytes(64) + limits.points * 400 < gib << 30


def test_the_machine_tells_what_is_free():
    assert 2**24 < available_memory(torch.device("cpu")) < 2**50


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), True),
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shapes do not agree"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_failures(error, told):
    assert is_out_of_memory(error) is told
