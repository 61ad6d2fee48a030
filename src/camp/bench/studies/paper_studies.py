"""The studies of the paper, with the paper's values where it gives them, and one of our own about long tails."""

from typing import Any

from camp.bench.studies.study import Options, Study, grid
from camp.core.errors import CampError

DISTILLERS = ("none", "fd", "linear", "mlp", "trex")
ADAPTERS = ("none", "sdc", "linear", "mlp", "trex")
EXEMPLAR_FREE = ("frozen", "gcd", "gcd-ewc", "gcd-fd", "metagcd", "simgcd", "gm", "camp", "camp-plus")
"""Methods without exemplars."""
REPLAY = ("gcd-er", "pa", "metagcd", "igcd", "camp")
"""Methods of Table 1 with exemplars."""
INCREMENTAL = ("fine-tune", "gcd", "ewc", "lwf", "pass", "il2a", "ssre", "fetril", "camp", "joint")

_TABLE_1 = ("cifar100", "stanford_cars", "cub200", "fgvc_aircraft", "domainnet")
_TABLE_2 = {"cifar100": (5, 10, 20), "domainnet": (6, 12, 24), "imagenet_subset": (5, 10, 20)}


def _study(
    name: str, title: str, rows: tuple[Options, ...], claim: str, base: Options | None = None, **others: Any
) -> Study:
    """Return a study of the paper; unless given, its drawing has its name and its data set is CUB-200."""
    base = {"dataset": "cub200"} if base is None else base
    return Study(name, title, rows, claim=claim, base=base, **{"draw": name, **others})


_STUDIES = (
    _study(
        "table1",
        "Table 1: every method on every data set, with 0, 5 and 20 exemplars",
        tuple(
            row
            for dataset in _TABLE_1
            for row in (
                *grid(dataset=[dataset], method=EXEMPLAR_FREE),
                *grid(dataset=[dataset], exemplars=[5, 20], method=REPLAY),
            )
        ),
        claim="CAMP is best in most scenarios, with and without exemplars.",
        base={},
    ),
    _study(
        "table2",
        "Table 2: class-incremental learning from scratch",
        tuple(
            row
            for dataset, numbers in _TABLE_2.items()
            for row in grid(dataset=[dataset], tasks=numbers, method=INCREMENTAL)
        ),
        claim="CAMP is the best exemplar-free method.",
        base={"setting": "cil", "backbone": "resnet18"},
        small={"tasks": 2, "backbone": "conv-tiny", "dataset": "digits", "labelled_fraction": None},
    ),
    _study(
        "ablation",
        "CAMP without each of its parts",
        (
            {"method": "camp", "supervised": False},
            {"method": "camp", "self_supervised": False},
            {"method": "camp", "distiller": "none"},
            {"method": "camp", "adapter": "none"},
            {"method": "camp"},
        ),
        claim="All parts are needed; without L_SSL known classes gain 2.0 points and novel ones lose 2.8.",
    ),
    _study(
        "distillers-adapters",
        "Every distiller with every adapter",
        grid(method=["camp"], distiller=DISTILLERS, adapter=ADAPTERS),
        draw="heat-maps",
        claim="The MLP distiller with the linear adapter is best for all, known and novel classes; every adapter helps, "
        "unless features are distilled without a projector.",
        look={"x": "adapter", "y": "distiller", "what": ["all", "known", "novel"]},
    ),
    _study(
        "alpha",
        "Feature distillation against the MLP projector, by the weight of distillation",
        grid(method=["camp"], distiller=["fd", "mlp"], alpha=[0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.99]),
        claim="Without adaptation centroids are farther off under the MLP than under FD; adapted they are much nearer, and "
        "accuracy is much better. FD gains little from adaptation for alpha >= 0.4.",
        look={"x": "alpha", "series": "distiller"},
    ),
    _study(
        "beta",
        "Supervised against self-supervised loss",
        grid(method=["camp"], beta=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        draw="lines",
        claim="beta = 0 is very bad; novel classes suffer above 0.6.",
        look={"x": "beta", "what": ["all", "known", "novel"]},
    ),
    _study(
        "exemplars",
        "Centroids before and after adaptation with 0, 5 and 20 exemplars",
        grid(method=["camp"], exemplars=[0, 5, 20]),
        draw="before-after",
        claim="Adaptation brings centroids nearer to the true means with and without exemplars.",
        look={"x": "exemplars"},
    ),
    _study(
        "curves",
        "Accuracy after each task",
        grid(method=EXEMPLAR_FREE),
        claim="CAMP is best after most tasks.",
    ),
    _study(
        "plasticity-forgetting",
        "Plasticity against forgetting",
        grid(method=EXEMPLAR_FREE),
        claim="CAMP forgets little and still learns.",
    ),
    _study(
        "number-of-categories",
        "Accuracy on labelled images over the number of clusters",
        grid(method=["camp", "camp-plus"]),
        claim="The accuracy on labelled images peaks at the true number of categories.",
        base={"dataset": "cub200", "k": "estimated"},
        seeds=(0,),
        small={"tasks": 1, "max_novel": 4},
    ),
    _study(
        "drift",
        "Ten classes in two tasks, in two dimensions",
        grid(method=["gcd", "gcd-fd", "camp"]),
        claim="Under projected distillation the feature space drifts in a way that adaptation undoes; under GCD and GCD+FD it "
        "does not.",
        base={"dataset": "cub200", "classes": 10, "tasks": 2, "novel_fraction": 0.0},
        seeds=(0,),
        small={"classes": 6},
    ),
    _study(
        "centroid-distance",
        "How far centroids are from the true means, task by task",
        grid(method=["camp"], solver=["exact", "sgd"]),
        claim="Novel categories are farther off than known ones; adaptation helps both, after the last task by 44.8 % and "
        "28.8 % on CUB-200 (the authors' adapter is trained by SGD).",
    ),
    _study(
        "task-confusion",
        "To which task's categories images are sent",
        grid(method=["gcd", "camp"]),
        claim="GCD sends most images to the last task; CAMP does not.",
        base={"dataset": "stanford_cars"},
    ),
    _study(
        "scenarios",
        "More novel classes, fewer labels",
        grid(
            method=["gcd", "camp"],
            novel_fraction=[0.2, 0.4, 0.6, 0.8],
            labelled_fraction=[0.25, 0.5, 0.75, 1.0],
        ),
        claim="Accuracy falls with more novel classes and with fewer labels; CAMP is better than GCD in every scenario.",
        base={"dataset": "stanford_cars"},
        look={
            "x": "labelled_fraction",
            "y": "novel_fraction",
            "what": ["all", "forgetting"],
            "panels": "method",
        },
    ),
    _study(
        "long-tails",
        "Classes of unequal sizes, up to 10 and 50 times as large",
        (
            *grid(imbalance=[None, 10.0, 50.0], method=["frozen"]),
            *grid(imbalance=[None, 10.0, 50.0], k=["known", "estimated"], method=["camp-plus"]),
        ),
        claim="CAMP+ is above Frozen by 10 points for all and 20 for novel classes; the paper has no long tails.",
        draw="table",
    ),
)

STUDIES = {study.name: study for study in _STUDIES}


def paper_study(name: str) -> Study:
    """Return a study of the paper by its name."""
    if name not in STUDIES:
        raise CampError(f'There is no study "{name}"; the studies are {", ".join(STUDIES)}, or a .toml file.')
    return STUDIES[name]
