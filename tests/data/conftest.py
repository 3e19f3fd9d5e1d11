"""LAS and LAZ files of every kind, for the tests of reading and of copies."""

import pytest

# One of each kind: point formats 0, 1, 2, 3, 6, 7, 8, 10; versions 1.0 to 1.4; with VLRs, EVLRs,
# extra bytes (described, in two records, not described), padding, and none of these.
KINDS = [
    "PDAL__PDAL/test/data/las/epsg_4326.las",
    "PDAL__PDAL/test/data/las/interesting.las",
    "PDAL__PDAL/test/data/las/permutations/1.0_1.las",
    "PDAL__PDAL/test/data/las/permutations/1.2_2.las",
    "PDAL__PDAL/test/data/laszip/laszip-generated_with2bytespadding.laz",
    "PDAL__PDAL/test/data/las/mvk-thin.las",
    "PDAL__PDAL/test/data/las/wontcompress3.las",
    "PDAL__data_isprs/isprs/samp21-utm.laz",
    "IGNF__pdal-ign-plugin/test/data/mnx/input/68.laz",
    "IGNF__ign-pdal-tools/test/data/crop_duplicate.laz",
    "IGNF__myria3d/tests/data/single-point-cloud.laz",
    "laspy__laspy/tests/data/simple1_4.las",
    "laspy__laspy/tests/data/1_4_w_evlr.laz",
    "laspy__laspy/tests/data/fullwave.laz",
    "laspy__laspy/tests/data/extrabytes.las",
    "laspy__laspy/tests/data/unregistered_extra_bytes.las",
    "laspy__laspy/tests/data/append-bug.laz",
    "r-lidar__rlas/inst/extdata/fwf.laz",
    "r-lidar__lidR/inst/extdata/MixedConifer.laz",
    "hobuinc__laz-perf/cpp/test/raw-sets/point-color.las.laz",
    "hobuinc__laz-perf/cpp/test/raw-sets/no-points-1.3.laz",
]


@pytest.fixture(params=KINDS)
def las_file(request, real_data):
    return real_data / request.param
