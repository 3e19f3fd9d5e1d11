"""The published recipes: their numbers, and a step of each on a miniature of its data."""

import csv
import functools

import numpy as np
import pytest
import torch
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf, open_dict

from pctx.checkpoint import build_model, load_checkpoint
from pctx.cli.config import compose, config_folder, register_schemas
from pctx.cli.train import fit
from pctx.data.cards import card
from pctx.data.dataset import ScanDataset
from pctx.geometry.points import PointCloud

EXPERIMENTS = sorted(p.stem for p in (config_folder() / "experiment").glob("*_*.yaml"))
QUICK = ("nuscenes_ptv3", "scannet_octformer", "semantic_kitti_ptv2")
PUBLISHED = {  # rows of param_counts.tsv; others read channels that are not published so
    "nuscenes_litept": "litept_s_nuscenes",
    "nuscenes_ptv2": "ptv2m2_nuscenes",
    "nuscenes_ptv3": "ptv3_nuscenes",
    "s3dis_ptv1": "ptv1_s3dis",
    "s3dis_ptv1_sgd": "ptv1_s3dis",
    "s3dis_ptv2": "ptv2m2_s3dis",
    "s3dis_ptv3": "ptv3_s3dis",
    "s3dis_ptv3_rpe": "ptv3_s3dis_rpe",
    "scannet_litept": "litept_s_scannet",
    "scannet_ptv1": "ptv1_scannet",
    "scannet_ptv2": "ptv2m2_scannet",
    "scannet_ptv3": "ptv3_scannet",
    "semantic_kitti_ptv2": "ptv2m2_semantickitti",
    "semantic_kitti_ptv3": "ptv3_semantickitti",
    "waymo_litept": "litept_s_waymo",
    "waymo_ptv3": "ptv3_waymo",
}
RECIPES = {  # lr, share of the blocks, decay, epochs, clouds a batch, voxel, voxels a cloud
    "nuscenes_litept": (0.002, 0.1, 0.005, 50, 12, 0.05, None),
    "nuscenes_ptv2": (0.002, 1, 0.005, 50, 12, 0.05, None),
    "nuscenes_ptv3": (0.002, 0.1, 0.005, 50, 12, 0.05, None),
    "s3dis_ptv1": (0.006, 1, 0.05, 3000, 12, 0.04, 100000),
    "s3dis_ptv1_sgd": (0.5, 1, 0.0001, 3000, 16, 0.04, 80000),
    "s3dis_ptv2": (0.006, 1, 0.05, 3000, 12, 0.04, 80000),
    "s3dis_ptv3": (0.006, 0.1, 0.05, 3000, 12, 0.02, 204800),
    "s3dis_ptv3_rpe": (0.006, 0.1, 0.05, 3000, 12, 0.02, 204800),
    "s3dis_swin3d": (0.001, 0.1, 0.05, 3000, 12, 0.04, 80000),
    "scannet_litept": (0.006, 0.1, 0.05, 1200, 12, 0.02, 102400),
    "scannet_octformer": (0.0015, 0.1, 0.05, 600, 12, 0.01, 120000),
    "scannet_ptv1": (0.005, 1, 0.02, 900, 12, 0.02, 100000),
    "scannet_ptv2": (0.005, 1, 0.02, 900, 12, 0.02, 100000),
    "scannet_ptv3": (0.006, 0.1, 0.05, 800, 12, 0.02, 102400),
    "scannet_swin3d": (0.006, 0.1, 0.05, 600, 12, 0.02, 120000),
    "semantic_kitti_ptv2": (0.002, 1, 0.005, 50, 8, 0.05, 120000),
    "semantic_kitti_ptv3": (0.002, 0.1, 0.005, 50, 12, 0.05, None),
    "waymo_litept": (0.002, 0.1, 0.005, 50, 12, 0.05, None),
    "waymo_ptv3": (0.002, 0.1, 0.005, 50, 12, 0.05, None),
}
LOVASZ = ("ptv3", "ptv3_rpe", "litept")


class Miniature(ScanDataset):
    """Small random clouds that have every field and the raw ids of a card."""

    def __init__(self, name):
        self.card = card(name)

    def scans(self, split):
        return [f"{split} {i}" for i in range(2)]

    def read(self, scan):
        rng = np.random.default_rng(list(scan.encode()))
        ids = [raw[0] for raw in self.card.labels.raw]
        normal = rng.normal(size=(400, 3))
        return PointCloud(
            coord=rng.uniform((-3, -3, 0), (3, 3, 1.5), (400, 3)).astype(np.float32),
            color=rng.integers(0, 256, (400, 3), dtype=np.uint8),
            normal=(normal / np.linalg.norm(normal, axis=1, keepdims=True)).astype(np.float32),
            intensity=rng.random(400, dtype=np.float32),
            label=rng.choice(ids, 400),
        )


@functools.cache
def experiment(name, *overrides):
    return compose("train", [f"experiment={name}", "name=x", "data.root=x", *overrides])


def miniature(name, *overrides):
    """The experiment with two small clouds a batch, on a CPU."""
    few = ("data.batch_size=2", "data.max_points=200", "data.num_workers=0")
    plain = ("trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.max_epochs=1")
    every = ("trainer.check_val_every_n_epoch=1", "trainer.log_every_n_steps=1", "seed=3")
    config = experiment(name, *few, *plain, *every, *overrides)
    with open_dict(config):  # kept by no other test: its overrides are its own
        target = f"{Miniature.__module__}.Miniature"
        config.data.dataset = {"_target_": target, "name": config.data.card}
    return config


def tiny(name):
    family = name.split("_")[-1] if not name.endswith(("_rpe", "_sgd")) else name.split("_")[-2]
    return f"model={family}_tiny"


def trained(config, folder):
    fit(config, folder)
    with (folder / "metrics.csv").open() as file:
        (loss,) = (float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"])
    assert np.isfinite(loss)
    return load_checkpoint(folder / "model.pt")


def test_a_table_here_holds_every_recipe():
    assert sorted(RECIPES) == EXPERIMENTS
    assert set(PUBLISHED) <= set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_the_published_settings(name):
    config = experiment(name)
    lr, share, decay, epochs, batch, grid, points = RECIPES[name]
    data, optim, model = config.data, config.optim, name.partition("_")[2].removeprefix("kitti_")
    assert (optim.lr_factors or {}) == ({} if share == 1 else {"blocks": share})
    assert (optim.lr, optim.weight_decay, optim.decay) == (lr, decay, "all")
    assert (data.batch_size, data.grid_size, data.max_points) == (batch, grid, points)
    assert data.voxel_points == "random"
    assert config.trainer.max_epochs == epochs
    assert config.trainer.gradient_clip_val == (1.0 if name == "scannet_litept" else None)
    outdoor = name.startswith(("nuscenes", "semantic_kitti", "waymo"))
    wants_lovasz = outdoor or model in LOVASZ
    assert config.criterion._target_.endswith("WeightedSum" if wants_lovasz else ".CrossEntropy")
    schedule = optim.scheduler
    if schedule._target_.endswith("one_cycle"):
        expected = (0.04, 10, 100, [0.85, 0.95]) if outdoor else (0.05, 10, 1000, [0.85, 0.95])
        found = (schedule.warm_up, schedule.div_factor, schedule.final_div_factor)
        assert (*found, list(schedule.momentum)) == expected
    else:
        expected = [0.6, 0.9] if model == "octformer" else [0.6, 0.8]
        expected = [0.3, 0.6, 0.9] if name == "s3dis_ptv1_sgd" else expected
        assert list(schedule.milestones) == expected and schedule.gamma == 0.1
        assert not outdoor and schedule.warm_up == (0.05 if model == "octformer" else 0)
    mixes = config.augment.get("mix3d")
    unmixed = name == "s3dis_ptv1_sgd"
    assert (mixes is None) == unmixed and (unmixed or mixes.probability == 0.8)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_an_experiment_has_as_many_parameters_as_its_published_model(golden, name):
    with (golden / "param_counts.tsv").open() as file:
        counts = {
            row["name"]: int(row["parameters"]) for row in csv.DictReader(file, delimiter="\t")
        }
    config = experiment(name)
    features = instantiate(config.data.features, _convert_="all")
    arguments = OmegaConf.to_container(config.model, resolve=True)
    with torch.device("meta"):
        model = build_model(
            arguments.pop("_target_"), arguments, features, card(config.data.card).labels
        )
    assert sum(p.numel() for p in model.parameters()) == counts[PUBLISHED[name]]


def test_class_weights_are_one_a_class():
    for name in ("semantic_kitti_ptv2", "semantic_kitti_ptv3"):
        weights = experiment(name).criterion.terms.cross_entropy.class_weights
        assert len(weights) == len(card("semantic_kitti").labels) == 19


@pytest.mark.filterwarnings("ignore")  # Lightning gives advice by warnings
@pytest.mark.parametrize("name", QUICK)
def test_an_experiment_takes_a_step_on_a_miniature_with_a_tiny_model(name, tmp_path):
    trained(miniature(name, tiny(name)), tmp_path)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_takes_a_step_on_a_miniature_in_its_full_size(name, tmp_path):
    config = miniature(name)
    checkpoint = trained(config, tmp_path)
    assert checkpoint.grid_size == config.data.grid_size
    assert all(w.isfinite().all() for w in checkpoint.weights.values() if w.is_floating_point())


@pytest.mark.parametrize(
    ("override", "module", "target"),
    [
        ("hydra/sweeper=rates", "hydra_optuna_sweeper", "OptunaSweeper"),
        ("hydra/launcher=slurm", "hydra_submitit_launcher", "SlurmLauncher"),
    ],
)
def test_sweeps_and_jobs_compose_where_their_plugin_is(override, module, target):
    pytest.importorskip(f"hydra_plugins.{module}")
    register_schemas()
    with initialize_config_dir(version_base="1.3", config_dir=str(config_folder())):
        config = hydra_compose("train", overrides=[override], return_hydra_config=True)
    part = config.hydra[override.partition("/")[2].partition("=")[0]]
    assert part._target_.endswith(target)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_sweep_by_optuna_goes_by_the_miou(pctx, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    toy = [
        "model=point_vit_tiny",
        "data.dataset.num_train=2",
        "data.dataset.num_val=1",
        "data.dataset.sensors=[vlp16]",
        "data.dataset.cache=scans",
        "data.max_points=500",
        "trainer.max_epochs=1",
        "trainer.accelerator=cpu",
        "hydra.sweep.dir=sweep",
    ]
    code, _, err = pctx("train", "-m", "hydra/sweeper=rates", "hydra.sweeper.n_trials=2", *toy)
    assert code == 0, err
    result = OmegaConf.load(tmp_path / "sweep" / "optimization_results.yaml")
    assert set(result.best_params) == {"optim.lr", "optim.weight_decay"}
    found = [load_checkpoint(path).metrics["miou"] for path in tmp_path.glob("sweep/*/model.pt")]
    assert len(found) == 2
    assert result.best_value == pytest.approx(max(found))
