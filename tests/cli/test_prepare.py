"""pctx prepare: a cache, and training from it."""

import pytest

from pctx.data.io.formats import write
from tests.cli.test_train import TOY
from tests.toy import toy_cloud

CARD = """
name: toy
classes:
  - {name: ground, color: [150, 100, 50], raw: [2]}
  - {name: tree, color: [0, 200, 0], raw: [5]}
  - {name: house, color: [200, 0, 0], raw: [6]}
"""


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "my scans"
    folder.mkdir()
    (folder / "card.yaml").write_text(CARD)
    for i in range(3):
        write(folder / f"{i}.npz", toy_cloud(300, seed=i))
    return folder


def test_a_raw_folder_is_kept_beside_itself_and_once(pctx, raw, tmp_path):
    command = ("prepare", "data=folder", f"data.raw='{raw}'", "workers=0")
    code, out, _ = pctx(*command)
    assert code == 0
    cache = tmp_path / "my scans.cache"
    assert out == f"pctx train data=folder data.root='{raw}' data.cache='{cache}'\n"
    files = sorted(cache.iterdir())
    assert [file.name for file in files] == ["0.npz.scan", "1.npz.scan", "2.npz.scan"]
    times = [file.stat().st_mtime_ns for file in files]
    assert pctx(*command)[0] == 0
    assert [file.stat().st_mtime_ns for file in files] == times


def test_a_broken_file_is_named_and_the_others_are_kept(pctx, raw, tmp_path):
    (raw / "1.npz").write_bytes(b"PK\3\4 and no more")
    code, _, err = pctx("prepare", "data=folder", f"data.raw='{raw}'", "data.cache=kept")
    assert code == 1
    lines = [line for line in err.splitlines() if line.startswith("pctx: ")]
    assert len(lines) == 1 and "1.npz" in lines[0]
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_training_and_evaluation_take_the_cache(pctx, tmp_path):
    data = [each for each in TOY if each.startswith("data.dataset") and "cache" not in each]
    code, _, err = pctx("prepare", *data, "data.cache=kept", "workers=2", "splits=[train,val]")
    assert code == 0, err
    files = list((tmp_path / "kept").rglob("*.scan"))
    assert len(files) == 4
    toy = [each for each in TOY if "cache" not in each]
    run = ["hydra.run.dir=run", "trainer.max_epochs=1", "data.cache=kept", "data.num_workers=1"]
    code, _, err = pctx("train", *toy, *run, "data.batch_points=2000", "data.crop_centers=balanced")
    assert code == 0, err
    code, _, err = pctx("evaluate", "checkpoint=run/model.pt")
    assert code == 0, err


def test_a_cache_that_is_not_there_is_named(pctx):
    code, _, err = pctx("train", *TOY, "data.cache=nowhere")
    assert code == 1
    assert "data.cache=nowhere: no such folder; `pctx prepare` makes one" in err
