"""The commands as a user types them: exit codes, one sentence on stderr, files written."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import typer

from pctx.cli.main import app, main
from pctx.data.io.formats import read, write
from pctx.geometry.points import PointCloud
from pctx.inference.predictor import Predictor
from tests.toy import LABELS, toy_checkpoint, toy_cloud


@pytest.fixture
def model(tmp_path):
    toy_checkpoint().save(tmp_path / "model.pt")
    return tmp_path / "model.pt"


@pytest.fixture
def scan(tmp_path):
    path = tmp_path / "scan.laz"
    write(path, toy_cloud(label=False))
    return path


def sentence(err):
    lines = [line for line in err.splitlines() if line.startswith("pctx: ")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


def test_help_is_fast_and_imports_no_torch():
    code = (
        "import sys; sys.argv = ['pctx', '--help']\n"
        "from pctx.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'hydra', 'open3d', 'pytorch_lightning'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("train", "evaluate", "predict", "view", "convert", "info", "doctor", "demo"):
        assert command in done.stdout


@pytest.mark.parametrize("command", sorted(typer.main.get_group(app).commands))
def test_every_command_shows_examples(pctx, command):
    code, out, _ = pctx(command, "--help")
    assert code == 0
    assert f"pctx {command}" in out


def test_importing_pctx_is_light():
    code = (
        "import sys, pctx; "
        "print({'hydra', 'open3d', 'laspy', 'pytorch_lightning', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_public_name_is_there():
    import pctx as package

    for name in package.__all__:
        assert getattr(package, name) is not None


def test_predict_writes_the_points_of_the_source_in_their_order(pctx, model, scan):
    code, _, err = pctx("predict", model, scan, "-o", "out.laz", "--entropy")
    assert code == 0, err
    source, labelled = read(scan), read(scan.parent / "out.laz")
    np.testing.assert_array_equal(source.xyz, labelled.xyz)
    assert labelled.label is not None
    assert set(labelled.label.tolist()) <= {2, 5, 6}
    assert "entropy" in labelled.extra


def test_predict_twice_gives_the_same_bytes_and_overwrites_only_when_told(pctx, model, scan):
    assert pctx("predict", model, scan, "-o", "out.laz")[0] == 0
    first = (scan.parent / "out.laz").read_bytes()
    code, _, err = pctx("predict", model, scan, "-o", "out.laz")
    assert code == 1
    assert "out.laz: exists already; --overwrite replaces it" in sentence(err)
    assert pctx("predict", model, scan, "-o", "out.laz", "--overwrite")[0] == 0
    assert (scan.parent / "out.laz").read_bytes() == first


def test_a_folder_is_mirrored_and_a_broken_file_stops_no_other(pctx, model, scan, tmp_path):
    folder = tmp_path / "scans" / "deep"
    folder.mkdir(parents=True)
    scan.rename(folder / "a.laz")
    (folder / "b.laz").write_bytes(b"")
    (folder / "c.laz").write_bytes((folder / "a.laz").read_bytes()[:600])
    code, _, err = pctx("predict", model, "scans", "-o", "out", "--format", "npz")
    assert code == 1
    assert "b.laz: the file is empty" in err
    assert "c.laz" in err
    assert (tmp_path / "out" / "deep" / "a.npz").is_file()
    assert sum(line.startswith("pctx: ") for line in err.splitlines()) == 2


def test_a_point_that_is_not_finite_gets_the_unlabelled_id(pctx, model, tmp_path):
    coord = toy_cloud().coord.copy()
    coord[17, 1] = np.nan
    np.savez(tmp_path / "scan.npz", coord=coord)
    assert pctx("predict", model, "scan.npz", "-o", "out.npz")[0] == 0
    label = read(tmp_path / "out.npz").label
    assert label is not None
    assert len(label) == len(coord)
    assert label[17] == LABELS.unlabeled
    assert np.isin(np.delete(label, 17), [2, 5, 6]).all()


def test_features_are_written_for_every_point_on_demand(pctx, model, scan, tmp_path):
    assert pctx("predict", model, scan, "-o", "out.npz", "--features")[0] == 0
    feat = np.load(tmp_path / "out.npz")["feat"]
    assert feat.shape == (len(read(scan)), 8) and feat.dtype == np.float32
    expected = Predictor(model, features=True)(read(scan)).features
    np.testing.assert_array_equal(feat, expected)
    assert pctx("predict", model, scan, "-o", "bare.npz")[0] == 0
    assert "feat" not in np.load(tmp_path / "bare.npz")


def test_evaluation_reads_raw_ids_by_the_card_of_the_data(pctx, model, tmp_path):
    (tmp_path / "scans").mkdir()
    cloud = toy_cloud(500)
    write(tmp_path / "scans" / "a.npz", cloud)

    def evaluate(name, raw):
        rows = [
            {"name": n, "color": [0, 0, 0], "raw": ids}
            for n, ids in zip(LABELS.names, raw, strict=True)
        ]
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"name": name, "classes": rows}))
        data = [f"data.card={name}.yaml", "data.root=scans", "hydra.run.dir=run"]
        code, _, err = pctx("evaluate", "checkpoint=model.pt", "data=folder", *data)
        assert code == 0, err
        return json.loads((tmp_path / "run" / "metrics.json").read_text())

    own = evaluate("own", [[2], [5], [6]])
    write(tmp_path / "scans" / "a.npz", replace(cloud, label=cloud.label + 10), overwrite=True)
    assert evaluate("other", [[12], [15], [16]]) == own


def test_only_classes_keeps_the_other_labels(pctx, model, tmp_path):
    cloud = toy_cloud()
    write(tmp_path / "scan.laz", cloud)
    assert pctx("predict", model, "scan.laz", "-o", "all.laz")[0] == 0
    assert pctx("predict", model, "scan.laz", "-o", "some.laz", "--only-classes", "house")[0] == 0
    every, some = read(tmp_path / "all.laz").label, read(tmp_path / "some.laz").label
    np.testing.assert_array_equal(some, np.where(every == 6, 6, cloud.label))
    code, _, err = pctx("predict", model, "scan.laz", "-o", "x.laz", "--only-classes", "shed")
    assert code == 2
    assert "no class 'shed'; it has ground, tree, house" in sentence(err)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("predict", "model.pt", "nowhere.laz", "-o", "out.laz"), 1, "nowhere.laz: no such file"),
        (("predict", "nowhere.pt", "scan.laz", "-o", "o.laz"), 1, "nowhere.pt: no such model"),
        (("predict", "scan.laz", "scan.laz", "-o", "o.laz"), 1, "not a pctx model file"),
        (("predict", "model.pt", "scan.laz", "-o", "o.laz", "--fill", "x"), 2, "FIELD=NUMBER"),
        (("predict", "model.pt", "scan.laz", "-o", "o.laz", "--tile", "0"), 2, "above 0 metres"),
        (("predict", "model.pt", "scan.laz", "-o", "o.laz", "--tile", "-1"), 2, "--tile must be"),
        (("predict", "model.pt", "scan.laz", "-o", "o.laz", "--tile", "nan"), 2, "--tile must be"),
        (("predict", "model.pt", "scan.laz", "-o", "o.laz", "--overlap", "-1"), 2, "--overlap mu"),
        (
            ("predict", "model.pt", "scan.laz", "-o", "o.laz", "--fill", "bogus=1"),
            2,
            "reads height",
        ),
        (("predict", "model.pt", "scan.laz", "-o", "o.laz", "--fill", "height=nan"), 2, "NUMBER"),
        (("predict", "model.pt", "", "-o", "o"), 2, "INPUT is empty"),
        (("predict", "model.pt", "scan.laz", "-o", ""), 2, "-o is empty"),
        (("predict", "", "scan.laz", "-o", "o.laz"), 2, "MODEL is empty"),
        (("predict", "model.pt", "scan.laz", "-o", "o.laz", "--features"), 1, "write .npz"),
        (
            ("evaluate", "checkpoint=model.pt", "views=0"),
            2,
            "views must be from 1 to 1000, found 0",
        ),
        (("evaluate", "checkpoint=model.pt", "tile=-1"), 2, "tile must be above 0 metres"),
        (("evaluate", "checkpoint=model.pt"), 2, "the card of the data (street) has the classes"),
        (("predict", "model.pt", "scan.laz", "-o", "scan.laz"), 1, "file that is read"),
        (
            ("predict", "model.pt", "scan.laz", "-o", "o.laz", "--device", "mars"),
            2,
            "device 'mars'",
        ),
        (("predict", "model.pt", "scan.laz", "-o", "o.laz", "--format", "ply"), 2, "do not agree"),
        (("predict", "model.pt", "a", "b", "-o", "o.laz"), 2, "o.laz names a file"),
        (("predict", "model.pt", "scan.laz", "-o", "empty.laz/o.laz"), 1, "empty.laz is a file"),
        (("view", "scan.laz", "--render", "a.png", "--size", "99999x99999"), 2, "64 to 8192"),
        (("info", "empty.laz"), 1, "empty.laz: the file is empty"),
        (("info", "picture.laz"), 1, "picture.laz"),
        (("view", "nowhere.ply", "--render", "a.png"), 1, "nowhere.ply: no such file"),
        (("view", "scan.laz", "--render", "a.png", "--size", "big"), 2, "WIDTHxHEIGHT"),
        (("view", "scan.laz", "--render", "a.png", "--card", "mars"), 1, "known: "),
        (("train", "modle=ptv3"), 2, "did you mean 'model'?"),
        (
            ("train", "model=ptv9"),
            2,
            "there is no model=ptv9; did you mean 'ptv3'? There are",
        ),
        (("train", "augment=[lidar,wet]"), 2, "there is no augment=wet; there are aerial, crop"),
        (("train", "data=folder", "data.root=scan.laz"), 1, "scan.laz: this is a file; give its f"),
        (("check", "."), 2, "a folder of scans is named by data=folder data.root=."),
        (("evaluate", "model.pt"), 2, "a model is named by checkpoint=model.pt"),
        (("evaluate", "checkpoint=model.pt", "views=many"), 2, "views: Value 'many'"),
        (
            ("train", "data.root=scans"),
            2,
            "there is no key 'data.root' in the configuration; it goes",
        ),
        (("train", "optim/scheduler=x"), 2, "there is no optim/scheduler=x; there are constant, c"),
        (("train", "trainer.max_epoch=3"), 2, "did you mean 'trainer.max_epochs'?"),
        (("train", "data=folder", "data.card=street"), 2, "data.root is needed"),
        (("train", "data=folder", "data.root=no", "data.card=street"), 1, "no: no such folder"),
        (("train", "resume=a =[b]"), 2, "quote the value"),
        (("train", "name=a =[b]"), 2, "quote the value"),
        (("train", "ptv3"), 2, "no override such as key=value"),
        (("train", "optim.lr=-1"), 1, "optim.lr must be above 0"),
        (("train", "data.max_points=0"), 2, "data.max_points must be a whole number from 1"),
        (("train", "data.samples_per_epoch=-1"), 2, "data.samples_per_epoch must be a whole"),
        (("train", "-x"), 2, "unrecognized arguments: -x; pctx train --help"),
        (("evaluate",), 2, "checkpoint is needed"),
        (("evaluate", "checkpoint=no.pt"), 1, "no.pt: no such model file"),
        (("train", "resume=nowhere"), 1, "not the folder of a run, such as runs/NAME/DATE"),
    ],
)
def test_bad_input_gives_one_sentence(pctx, model, scan, tmp_path, arguments, code, words):
    (tmp_path / "empty.laz").touch()
    (tmp_path / "picture.laz").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(500))
    before = scan.read_bytes()
    found, _, err = pctx(*arguments)
    assert found == code, err
    assert words in sentence(err)
    assert scan.read_bytes() == before
    assert not list(tmp_path.glob("o*.laz"))


def test_a_link_to_nothing_is_named_as_the_input(pctx, model, tmp_path):
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "a.laz").symlink_to("nowhere.laz")
    code, _, err = pctx("predict", model, "scans", "-o", "out")
    assert code == 1
    assert sentence(err) == "pctx: scans/a.laz: no such file"


def test_an_id_that_a_format_cannot_hold_is_refused_before_computing(pctx, tmp_path):
    toy = toy_checkpoint()
    labels = replace(toy.labels, raw=((2,), (300,), (6,)))
    replace(toy, labels=labels).save(tmp_path / "model.pt")
    write(tmp_path / "scan.npz", toy_cloud(100, label=False))
    code, _, err = pctx("predict", "model.pt", "scan.npz", "-o", "out.laz")
    assert code == 1
    assert "out.laz: the raw id 300 of a class does not fit" in sentence(err)
    assert pctx("predict", "model.pt", "scan.npz", "-o", "out.label")[0] == 0


def test_wrong_flags_are_wrong_usage(pctx):
    assert pctx("predict", "--bogus")[0] == 2
    assert pctx("bogus")[0] == 2


def test_info_as_json(pctx, tmp_path):
    write(tmp_path / "scan.laz", toy_cloud())
    code, out, _ = pctx("info", "scan.laz", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["points"] == 3000
    assert sum(facts["classes"].values()) == 3000
    assert facts["suggested_grid_size"] > 0


def test_info_tells_the_reference_system_of_a_survey(pctx, real_data):
    tile = real_data / "IGNF__pdal-ign-plugin/test/data/mnx/input/68.laz"
    assert re.search(r"crs +EPSG:2154", pctx("info", tile)[1])
    scan = real_data / "mit-han-lab__spvnas/assets/000000.bin"
    assert "crs" not in pctx("info", scan)[1]


@pytest.mark.parametrize("n", [0, 1])
def test_info_and_view_of_hardly_any_points(pctx, tmp_path, n):
    np.savez(tmp_path / "few.npz", coord=np.zeros((n, 3), dtype=np.float32))
    assert pctx("info", "few.npz")[0] == 0
    assert pctx("view", "few.npz", "--render", "few.png", "--size", "200x150")[0] == 0
    assert (tmp_path / "few.png").stat().st_size > 500


def test_view_draws_what_a_model_predicts_and_where_it_errs(pctx, model, tmp_path):
    write(tmp_path / "scan.laz", toy_cloud(500))
    shown = ("view", "scan.laz", "--model", model, "--color", "error", "--size", "300x200")
    assert pctx(*shown, "--render", "a.png", "--html", "a.html")[0] == 0
    assert (tmp_path / "a.png").is_file()
    assert "wrong" in (tmp_path / "a.html").read_text()


def test_view_without_a_display_says_so_and_still_draws(pctx, monkeypatch, tmp_path):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    write(tmp_path / "scan.laz", toy_cloud(500))
    code, _, _ = pctx("view", "scan.laz")
    assert code == 0
    assert (tmp_path / "scan.png").is_file()


def test_doctor_says_that_a_cpu_run_works(pctx):
    code, out, _ = pctx("doctor")
    assert code == 0
    assert "a CPU run works" in out


def test_a_missing_channel_is_named_before_it_is_guessed(pctx, tmp_path):
    toy_checkpoint(fields=("height", "color")).save(tmp_path / "color.pt")
    np.savez(tmp_path / "scan.npz", coord=toy_cloud().coord)
    code, _, err = pctx("predict", "color.pt", "scan.npz", "-o", "out.npz")
    assert code == 1
    assert "scan.npz: the model reads color" in sentence(err)
    assert pctx("predict", "color.pt", "scan.npz", "-o", "out.npz", "--fill", "color=0")[0] == 0


def test_an_empty_cloud_gives_an_empty_file(pctx, model, tmp_path):
    write(tmp_path / "none.npz", PointCloud(coord=np.zeros((0, 3), dtype=np.float32)))
    assert pctx("predict", model, "none.npz", "-o", "out.npz")[0] == 0
    assert len(read(tmp_path / "out.npz")) == 0


def test_what_ends_a_process_that_loads_is_told_as_if_it_were_here(monkeypatch, capsys):
    traceback = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most …):\n"

    def fails(*_):
        raise ValueError(f"{traceback}  File …\nValueError: a.laz: cut at byte 3\n")

    monkeypatch.setattr("pctx.cli.main.app", fails)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert capsys.readouterr().err == "pctx: a.laz: cut at byte 3\n"
