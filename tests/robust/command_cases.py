"""Command lines gone wrong: real files, models and cards mutated, arguments that nobody means."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import SHARED
from tests.robust.mutations import mutate
from tests.robust.seeds import FORMATS, seeds
from tests.toy import toy_checkpoint

ROOT = SHARED / "data" / "real"
NUMBERS = ("0", "-1", "nan", "inf", "-inf", "1e300", "1e-300", "0.3", "2", "", "x", "1;2", "9" * 30)
NAMES = (
    *("", " ", "no such file", "in", "in/none.las", "/dev/null", "ä ö.las", "-x", "a'b.las"),
    *("$(touch hacked)", "x" * 300 + ".las", "a\nb.las", "out/../out/x.las", "[a]*.laz", "a=b.las"),
)
SUFFIXES = (".las", ".laz", ".ply", ".pcd", ".npz", ".txt", ".label", ".bin", ".xyz", ".e57", "")
CARD = """name: toy
classes:
  - {name: ground, color: [150, 100, 50], raw: [0, 1, 2]}
  - {name: tree, color: [0, 200, 0], raw: [3, 4, 5]}
  - {name: house, color: [200, 0, 0], raw: [6]}
ignore: [7, 8, 9, 10, 11, 12]
"""
ALL_CODES = CARD.replace("[7, 8, 9, 10, 11, 12]", str([*range(7, 260)]))
"""A card that knows every code of the real scans."""
METRICS = """epoch,step,train/loss,val/miou,lr
0,10,1.5,,0.001
0,10,,0.25,
1,20,0.9,,0.0005
1,20,,0.5,
"""
RUN = """data:
  root: in/scans
  cache: null
  dataset:
    _target_: pctx.data.datasets.folder.FolderDataset
    root: ${data.root}
    card: null
    splits: null
"""
QUICK = (
    *("trainer.max_epochs=1", "+trainer.limit_train_batches=1", "trainer.accelerator=cpu"),
    *("data.batch_size=1", "data.samples_per_epoch=1", "data.max_points=500"),
    *("model.channels=[8,16]", "model.depths=[1,1]", "model.num_heads=[1,2]"),
    *("model.strides=[2]", "model.decoder_channels=[8]", "model.decoder_depths=[1]"),
    *("model.decoder_num_heads=[1]", "data.num_workers=0"),
)
"""Overrides of a training that takes a second."""
SUBJECTS = {
    "plan": {"points": 500, "voxels": 500, "sizes": "[500]"},
    "forward": {"voxels": 300, "model": "ptv3_tiny", "backward": "false"},
    "vector": {"voxels": 300, "channels": 8},
    "conv": {"voxels": 300, "channels": "[8]"},
    "models": {"voxels": 300, "models": "[ptv2_tiny]"},
    "loader": {"points": 300, "workers": 1, "scans": 2},
    "predict": {},
}
KEYS = ("threads", "device", "file", "csv", "nonsense", "backward", "model", "models", "repeats")
READ = (("height",), ("coord", "intensity"), ("color",))
"""Channels that the models read."""
COMMANDS = (
    *("info", "view", "predict", "evaluate", "check", "card"),
    *("convert", "export", "prepare", "train"),
    *("report", "benchmark", "doctor", "demo"),
)
LABELLED = ("las", "laz", "kitti", "nuscenes", "npz", "folder")
"""Formats of whose scans most have labels."""
SLOW = {"train": 120, "export": 240, "evaluate": 60, "report": 60}
"""Seconds of a processor for commands that do more than read and label a small file."""
SECONDS = 30
KINDS = tuple(kind for kind in FORMATS if kind != "e57")


@dataclass
class Case:
    """A command line; files lie in `in` of its folder, what is written goes to `out`."""

    arguments: list
    seconds: float
    outputs: list = field(default_factory=list)


class World:
    """Sound files to go wrong: scans by format, and models by what they read."""

    def __init__(self, folder):
        self.scans = {kind: seeds(ROOT, kind) for kind in KINDS}
        self.models = []
        for number, fields in enumerate(READ):
            path = Path(folder) / f"{number}.pt"
            toy_checkpoint(fields=fields).save(path)
            self.models.append(path.read_bytes())


def make(world, command, folder, rng):
    """Lay out the files of a case in a folder, and give it."""
    for name in ("in", "out"):
        (folder / name).mkdir(parents=True)
    arguments, outputs = _BUILDERS[command](world, folder, rng)
    if arguments and command != "demo" and rng.random() < 0.08:
        arguments[rng.randrange(len(arguments))] = rng.choice((*NUMBERS, *NAMES))
    if rng.random() < 0.05:
        arguments.append(rng.choice(("--nonsense", "-q", "extra", *NUMBERS, *NAMES)))
    return Case([command, *arguments], SLOW.get(command, SECONDS), outputs)


def scan(world, folder, rng, wrong=0.7, below="in", kinds=KINDS):
    """Write the files of a scan, most often one of them gone wrong, and name the one to read."""
    kind = rng.choice(kinds)
    files, other = dict(rng.choice(world.scans[kind])), rng.choice(world.scans[kind])
    if rng.random() < wrong:
        name = rng.choice(list(files))
        files[name] = mutate(files[name], rng.choice(list(other.values())), kind, rng)
    for name, data in files.items():
        path = folder / below / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    first = next(iter(files))
    return f"{below}/{Path(first).parent if kind == 'folder' else first}"


def model(world, folder, rng, wrong=0.25, which=None):
    data = rng.choice(world.models) if which is None else world.models[which]
    if rng.random() < wrong:
        data = mutate(data, rng.choice(world.models), "model", rng)
    (folder / "in/model.pt").write_bytes(data)
    return "in/model.pt"


def some(rng, *options):
    """Take each option, a flag and its values, with one chance in thirty."""
    taken = []
    for flag, *values in options:
        if rng.random() < 0.03:
            taken += [flag, rng.choice(values)] if values else [flag]
    return taken


def info(world, folder, rng):
    files = [scan(world, folder, rng, below=f"in/{i}") for i in range(rng.choice((1, 1, 2)))]
    return [*files, *some(rng, ["--json"])], []


def view(world, folder, rng):
    target, flag = rng.choice((("out/a.png", "--render"), ("out/a.html", "--html")))
    options = some(
        rng,
        ["--color", "label", "height", "rgb", "instance", "order", "window", "nonsense"],
        ["--size", "300x200", "0x0", "axb", "99999x99999", "1e3x5"],
        ["--from", "top", "street", "oblique", "object", "inside"],
        ["--card", "asprs", "in", *NAMES],
        ["--grid", *NUMBERS],
        ["--windows", "serial", "octree", "grid", "global", "none"],
        ["--window-size", *NUMBERS],
    )
    options += ["--size", "320x240"] if "--size" not in options else []
    if rng.random() < 0.2:
        options += ["--model", model(world, folder, rng)]
    return [scan(world, folder, rng), flag, target, *options], [target]


def predict(world, folder, rng):
    target = f"out/a{rng.choice(SUFFIXES)}"
    options = some(
        rng,
        ["--tile", *NUMBERS],
        ["--overlap", *NUMBERS],
        ["--views", "1", "2", *NUMBERS],
        ["--vary", "rotate", "nothing", ""],
        ["--vote", "1", "3", *NUMBERS],
        ["--memory", "1G", "2K", "none", *NUMBERS],
        ["--min-confidence", *NUMBERS],
        ["--fill", "intensity=0", "color=nan", "color=0", "=", "height=1", *NUMBERS],
        ["--skip-codes", "2", "a", "2,,5", *NUMBERS],
        ["--only-classes", "tree", "tree,house", "", "nobody"],
        ["--format", "laz", "ply", "exe", ""],
        ["--probabilities"],
        ["--entropy"],
        ["--variance"],
        ["--features"],
    )
    which = rng.randrange(len(READ))
    lacking = [name for name in READ[which] if name in ("intensity", "color")]
    if lacking and "--fill" not in options and rng.random() < 0.9:
        options += ["--fill", f"{lacking[0]}=0"]
    reads = model(world, folder, rng, which=which)
    several = rng.random() < 0.2
    inputs = ["in"] if several else [scan(world, folder, rng)]
    if several:
        for i in range(3):
            scan(world, folder, rng, below=f"in/{i}")
        target = "out/labels"
    return [reads, *inputs, "-o", target, "--device", "cpu", *options], [target]


def dataset(world, folder, rng):
    """Give the overrides of a folder of scans with a card."""
    for i in range(2):
        kinds = LABELLED if rng.random() < 0.85 else KINDS
        scan(world, folder, rng, wrong=0.3, below=f"in/scans/{i}", kinds=kinds)
    card = ALL_CODES.encode() if rng.random() < 0.9 else CARD.encode()
    if rng.random() < 0.1:
        card = mutate(card, card, "text", rng)
    (folder / "in/scans/card.yaml").write_bytes(card)
    changed = some(
        rng,
        ["data.grid_size=0.2", "data.grid_size=0", "data.grid_size=nan", "data.grid_size=x"],
        ["data.card=asprs", "data.card=none", "data.card=in/scans/card.yaml"],
        ["data.features.fields=[height]", "data.features.fields=[]", "data.features.fields=3"],
        ["data.nonsense=1", "data=none", "data.root=nowhere", "data.root=in/scans/card.yaml"],
        ["data.num_workers=-1", "data.batch_size=0", "data.batch_size=x", "data.root='a b'"],
    )
    picked = [rng.choice(changed)] if changed else []
    return ["data=folder", "data.root=in/scans", *(word for word in picked if "=" in word)]


def evaluate(world, folder, rng):
    options = some(
        rng,
        ["split=train", "split=test", "split=none", "split=[a]"],
        ["views=2", "views=0", "tile=-1", "tile=5", "boundary=0", "ranges=[1,x]", "ranges=[20,40]"],
        ["calibrate=true", "calibrate=perhaps", "device=cpu", "device=none"],
    )
    told = [f"checkpoint={model(world, folder, rng)}", "hydra.run.dir=out/run"]
    return [*dataset(world, folder, rng), *told, *options[1::2]], []


def check(world, folder, rng):
    return dataset(world, folder, rng), []


def card(world, folder, rng):
    for i in range(2):
        scan(world, folder, rng, below=f"in/scans/{i}")
    if rng.random() < 0.2:
        (folder / "in/scans/card.yaml").write_text("name: kept\n")
    return ["in/scans"], []


def convert(world, folder, rng):
    options = some(
        rng,
        ["--model", "ptv3_base", "ptv1_seg50", "nobody", ""],
        ["--card", "asprs", "none", ""],
        ["--grid", *NUMBERS],
        ["--features", "coord,color", "", ","],
        ["--scale", "coord=2", "coord=0", "x"],
        ["--set", "window_size=128", "window_size=[", "=", "channels=[8,16]"],
        ["--to", "pointcept", "nowhere"],
    )
    if rng.random() < 0.5 and "--to" not in options:
        options += ["--to", "pointcept"]
    return [model(world, folder, rng, wrong=0.6), "-o", "out/weights.pth", *options], [
        "out/weights.pth"
    ]


def export(world, folder, rng):
    """Most models are gone wrong, as it takes seconds to trace one that is not."""
    target = rng.choice((*("out/net.pt2", "out/net.onnx") * 4, "out/net", "out"))
    options = some(rng, ["--onnx"], ["--overwrite"])
    return [model(world, folder, rng, wrong=0.9), "-o", target, *options], [target]


def prepare(world, folder, rng):
    odd = some(rng, ["splits=[train]", "splits=[none]", "workers=-1", "workers=x"])
    return [*dataset(world, folder, rng), "data.cache=out/cache", "workers=0", *odd[1:]], []


def train(world, folder, rng):
    odd = some(
        rng,
        ["model=none", "model.channels=[7,9]", "model.depths=3", "optim.optimizer.lr=nan"],
        ["criterion=nothing", "seed=-5", "seed=x", "augment=indoor", "threads=0"],
        ["init_from=in/model.pt", "resume=in", "freeze=head", "resume=nowhere"],
    )
    if any("in/model.pt" in word for word in odd):
        model(world, folder, rng)
    return [*dataset(world, folder, rng), *QUICK, "hydra.run.dir=out/run", *odd[1::2]], []


def report(world, folder, rng):
    """A folder of a run, with parts of it gone wrong or away."""
    run = folder / "in/run"
    (run / ".hydra").mkdir(parents=True)
    model(world, folder, rng)
    (folder / "in/model.pt").rename(run / "model.pt")
    dataset(world, folder, rng)
    parts = {"metrics.csv": METRICS, ".hydra/config.yaml": RUN, ".hydra/overrides.yaml": "- a=b\n"}
    for name, text in parts.items():
        data = text.encode()
        (run / name).write_bytes(mutate(data, data, "text", rng) if rng.random() < 0.3 else data)
    if rng.random() < 0.4:
        (run / rng.choice(("model.pt", *parts))).unlink()
    options = some(
        rng,
        ["--split", "train", "val", "nobody", ""],
        ["--scans", "0", "1", *NUMBERS],
        ["--worst", "0", "1", *NUMBERS],
        ["--overwrite"],
    )
    return ["in/run", "-o", "out/a.html", *options], ["out/a.html"]


def benchmark(world, folder, rng):
    """A subject with few points, keys that are odd, a table that is another."""
    subject = rng.choice((*SUBJECTS, *SUBJECTS, "x", ""))
    told = [f"{key}={value}" for key, value in SUBJECTS.get(subject, {}).items()]
    told += [f"file={scan(world, folder, rng)}", "repeats=1"]
    told += [f"model={model(world, folder, rng)}"] if subject == "predict" else []
    for _ in range(rng.choice((0, 1, 1, 2))):
        key = rng.choice((*KEYS, *KEYS, "grid_size"))
        told.append(f"{key}={rng.choice((*NUMBERS, *NAMES))}")
    if rng.random() < 0.2:
        (folder / "in/a.csv").write_text("other,columns\n1,2\n")
        told.append("csv=in/a.csv")
    elif rng.random() < 0.2:
        told.append("csv=out/a.csv")
    return [subject, *told], []


def doctor(world, folder, rng):
    return [], []


def demo(world, folder, rng):
    """Places that cannot be used; others would take minutes."""
    scan(world, folder, rng)
    return ["--out", rng.choice(("in", "/dev/null", "/proc/none", "in/" + "x" * 300, "in\0"))], []


_BUILDERS = {
    **{"info": info, "view": view, "predict": predict, "evaluate": evaluate, "check": check},
    **{"card": card, "convert": convert, "export": export, "prepare": prepare, "train": train},
    **{"report": report, "benchmark": benchmark, "doctor": doctor, "demo": demo},
}
