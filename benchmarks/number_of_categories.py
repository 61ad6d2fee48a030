"""Error of the estimated number of new categories, on random batches of a dataset of class folders.

python benchmarks/number_of_categories.py CUB/train CIFAR/train

Prints mean error and mean absolute error for small and large batches. A batch contains some known classes, half of whose
images are labelled, and some new classes, with 15 to 30 images of each. Features are those of the default backbone,
without training.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from camp.core.parallel import threaded_map
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.augmentations import normalise_, to_unit
from camp.data.bank.pipeline import decode_resized
from camp.data.datasets.base import FileReader
from camp.discovery.base import FeatureBatch, KnownCategories
from camp.discovery.open_world_discoverer import OpenWorldDiscoverer
from camp.nn.backbones import BackboneSettings, make_backbone

CLASSES, PICTURES = 50, 30
SMALL = [(known, new) for known in (6, 10, 20) for new in (0, 2, 4, 6)]
LARGE = [(30, new) for new in (0, 6, 12, 18)]


def features(root: Path) -> torch.Tensor:
    """Return features (CLASSES, PICTURES, D) of randomly chosen classes."""
    names = class_names(root)
    chosen = np.random.default_rng(0).choice(len(names), CLASSES, replace=False)
    found = class_features(root, [names[i] for i in chosen])
    return torch.stack([z for z in found if len(z) == PICTURES])


def class_names(root: Path) -> list[str]:
    """Return the class folders in `root`, sorted."""
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def class_features(root: Path, names: list[str]) -> list[torch.Tensor]:
    """Return features (n, D) of the first PICTURES images of each class, with the default backbone."""
    backbone = make_backbone(BackboneSettings(), generator(0, "backbone"))
    trunk = backbone.single_threaded_trunk()
    assert trunk is not None

    @torch.no_grad()
    def one(name: str) -> torch.Tensor:
        files = sorted((root / name).iterdir())[:PICTURES]
        pixels = [
            decode_resized(FileReader(root).decode, file.read_bytes(), backbone.resolution) for file in files
        ]
        x = normalise_(to_unit(torch.from_numpy(np.stack(pixels))), backbone.mean, backbone.std)
        return backbone.tip(trunk(x))

    return list(threaded_map(one, names, lookahead=4))


def error(z: torch.Tensor, known: int, new: int, trial: int) -> int:
    """Return the estimated minus the true number of new classes in a random batch."""
    draw = np.random.default_rng(trial)
    rows, labels = [], []
    for number, index in enumerate(draw.choice(len(z), known + new, replace=False)):
        count = int(draw.integers(15, PICTURES + 1))
        rows.append(z[index, draw.permutation(PICTURES)[:count]])
        labels += [number if number < known and i < count / 2 else -1 for i in range(count)]
    x, y = torch.cat(rows), torch.tensor(labels)
    batch = FeatureBatch(x, y, None, KnownCategories.empty(x.shape[1]), seed=trial, index=0)
    return OpenWorldDiscoverer().estimate(batch, Progress(quiet=True)).n_novel - new


if __name__ == "__main__":
    sets = [features(Path(path)) for path in sys.argv[1:]]
    for title, batches in (("small", SMALL), ("large", LARGE)):
        errors = [error(z, *batch, trial) for z in sets for trial, batch in enumerate(batches)]
        print(
            f"{title}: {len(errors)} batches, mean error {np.mean(errors):+.2f}, mean absolute error {np.abs(errors).mean():.2f}",
            flush=True,
        )
