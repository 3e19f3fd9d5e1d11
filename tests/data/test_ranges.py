"""Ranges of training, and files whose fields have another scale."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.io.formats import read
from pctx.data.labels import Card
from pctx.data.ranges import FACTOR, SCANS, measure_ranges, unlike
from pctx.geometry.points import PointCloud
from pctx.inference.predictor import Predictor
from tests.toy import LABELS, toy_checkpoint, toy_cloud

KITTI = "open-mmlab__mmdetection3d/tests/data/semantickitti/sequences/00/velodyne/000000.bin"
OTHER_KITTI = "mit-han-lab__spvnas/assets/000000.bin"
TILES = "IGNF__ign-pdal-tools/test/data/test_data_77050_6277{}_LA93_IGN69.laz"
EIGHT_BITS = "r-lidar__lidR/inst/extdata/MixedConifer.laz"
SIXTEEN_BITS = "IGNF__pdal-ign-plugin/test/data/mnx/input/bat.laz"
SPEC = FeatureSpec(fields=("height", "intensity", "color", "omega"))


class Held(ScanDataset):
    card = Card(name="held", labels=LABELS)

    def __init__(self, *clouds):
        self.clouds, self.reads = clouds, []

    def scans(self, split):
        return [str(i) for i in range(len(self.clouds))]

    def read(self, scan):
        self.reads.append(scan)
        return self.clouds[int(scan)]


def cloud(scale=1.0, n=2000, seed=0):
    rng = np.random.default_rng(seed)
    return PointCloud(
        coord=rng.uniform(0, 9, (n, 3)).astype(np.float32),
        intensity=(rng.random(n) * scale).astype(np.float32),
        color=rng.integers(0, 256, (n, 3)).astype(np.uint8),
        extra={"omega": rng.normal(size=n) * scale},
    )


def test_ranges_are_the_high_quantiles_of_what_was_seen_and_survive_a_file():
    spec = measure_ranges(SPEC, Held(cloud(), cloud(seed=1)))
    assert spec.ranges.keys() == {"intensity", "color", "omega"}
    assert spec.ranges["intensity"] == pytest.approx(0.95, abs=0.01)
    assert spec.ranges["omega"] == pytest.approx(1.96, abs=0.1)
    assert FeatureSpec.from_dict(spec.to_dict()) == spec
    assert "ranges" not in SPEC.to_dict()


def test_at_most_so_many_scans_are_read_and_none_where_no_scale_is_the_files():
    many = Held(*[cloud(n=10)] * (3 * SCANS))
    measure_ranges(SPEC, many)
    assert len(many.reads) == SCANS and many.reads[:2] == ["0", "3"]
    plain = FeatureSpec(fields=("height", "range", "normal"))
    held = Held(cloud())
    assert measure_ranges(plain, held) is plain and not held.reads


@pytest.mark.parametrize(
    ("scale", "told"), [(1, False), (FACTOR / 1.1, False), (255, True), (1 / 255, True)]
)
def test_another_scale_is_told_by_field(scale, told):
    spec = measure_ranges(SPEC, Held(cloud()))
    found = unlike(spec, cloud(scale, seed=2))
    assert found.keys() == ({"intensity", "omega"} if told else set())
    assert all(sentence.startswith(f"{name}: its values reach") for name, sentence in found.items())


def test_zeros_are_told_and_missing_broken_and_few_values_are_not():
    spec = measure_ranges(SPEC, Held(cloud()))
    zero = replace(cloud(), color=np.zeros((2000, 3), np.uint8))
    assert "color: its values are all 0" in unlike(spec, zero)["color"]
    assert not unlike(spec, replace(cloud(), color=None, intensity=None, extra={}))
    holes = cloud().intensity.copy()
    holes[::2] = np.nan
    assert not unlike(spec, replace(cloud(), intensity=holes))
    assert not unlike(spec, cloud(255).select(slice(0, 50)))


def test_a_predictor_tells_of_each_field_once(caplog):
    scan = replace(toy_cloud(), intensity=cloud(n=3000).intensity)
    made = toy_checkpoint(fields=("height", "intensity"))
    features = measure_ranges(made.features, Held(scan))
    predictor = Predictor(replace(made, features=features), tile=7.0)
    with caplog.at_level(logging.WARNING):
        predictor(scan)
        assert not caplog.records
        for _ in range(2):
            predictor(replace(scan, intensity=scan.intensity * 255))
    (record,) = caplog.records
    assert "intensity: its values reach" in record.message and "\n" not in record.message


def test_real_files_of_other_scales_are_told(real_data):
    kitti = read(real_data / KITTI)
    tile, neighbour, eight, sixteen = (
        read(real_data / name)
        for name in (TILES.format(55), TILES.format(60), EIGHT_BITS, SIXTEEN_BITS)
    )
    alike = [(kitti, read(real_data / OTHER_KITTI)), (tile, neighbour)]
    every = [kitti, tile, eight, sixteen]
    for seen, scan in alike:
        spec = measure_ranges(FeatureSpec(fields=("intensity",)), Held(seen))
        assert not unlike(spec, scan)
        for other in every:
            assert bool(unlike(spec, other)) == (other is not seen)
