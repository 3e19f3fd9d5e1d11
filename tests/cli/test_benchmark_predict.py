"""pctx benchmark predict: the Predictor beside the plain loop."""

import csv
import io

import numpy as np

from pctx.data.io.formats import write
from pctx.inference.plain_predict import plain_labels
from pctx.inference.predictor import Predictor
from tests.toy import toy_checkpoint, toy_cloud


def test_the_table_and_the_row_have_times_and_scores_of_every_way(pctx, tmp_path):
    toy_checkpoint().save(tmp_path / "model.pt")
    write(tmp_path / "scan.npz", toy_cloud(500))
    code, out, _ = pctx("benchmark", "predict", "model=model.pt", "file=scan.npz", "repeats=1")
    assert code == 0
    assert out.count("loop, ten views") == 2
    header, row = list(csv.reader(io.StringIO(out)))[-2:]
    found = dict(zip(header, row, strict=True))
    assert found["points"] == "500"
    for way in ("predictor", "plain", "single"):
        assert float(found[f"{way}_s"]) > 0
        assert 0 <= float(found[f"{way}_miou"]) <= 100


def test_files_have_rows_of_their_own_and_one_together(pctx, tmp_path):
    toy_checkpoint().save(tmp_path / "model.pt")
    for name, n in (("one.npz", 300), ("two.npz", 200)):
        write(tmp_path / name, toy_cloud(n))
    keys = ("model=model.pt", "file=[one.npz,two.npz]", "repeats=1", "csv=rows.csv")
    code, out, _ = pctx("benchmark", "predict", *keys)
    assert code == 0
    assert [name for name in ("one.npz", "two.npz", "together") if name in out] == [
        "one.npz",
        "two.npz",
        "together",
    ]
    assert " 500 " in out
    with (tmp_path / "rows.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["file"], row["points"]) for row in rows] == [
        ("one.npz", "300"),
        ("two.npz", "200"),
    ]


def test_a_model_and_a_file_are_needed(pctx):
    code, _, err = pctx("benchmark", "predict", "file=scan.npz")
    assert code == 2
    assert "model is needed" in err


def test_the_loop_with_one_view_is_the_predictor_where_a_voxel_has_one_point():
    checkpoint = toy_checkpoint(fields=("sensor_coord",))
    step = np.stack(np.meshgrid(*[np.arange(8)] * 3), axis=-1).reshape(-1, 3)
    cloud = toy_cloud(512)
    cloud = type(cloud)(coord=(0.5 * step + 0.25).astype(np.float32))
    predictor = Predictor(checkpoint)
    label = plain_labels(checkpoint, predictor.model, cloud, "cpu", views=1)
    np.testing.assert_array_equal(label, predictor(cloud).label)
