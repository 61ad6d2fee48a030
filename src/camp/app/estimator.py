"""CAMP for Python programs, as a scikit-learn estimator: the core of the workspaces, over pictures or vectors."""

import dataclasses
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from camp.app.workspace import memory_store as workspaces
from camp.app.workspace.array_input import GivenImages, NotUsable, read_labels
from camp.app.workspace.folder import WorkspaceSettings
from camp.app.workspace.load_model import recogniser
from camp.app.workspace.memory_store import Held
from camp.app.workspace.partial_fit import Given, teach
from camp.app.workspace.prediction import UNKNOWN, Unreadable, points
from camp.app.workspace.prediction_output import (
    FoundCategory,
    Label,
    found_categories,
    id_of,
    in_numbers,
    label_of,
    name_from,
)
from camp.app.workspace.training_budget import plan
from camp.core.progress import Progress
from camp.data.datasets.embeddings import VectorReader
from camp.nn.backbones.settings import BackboneSettings

VECTORS = "embeddings"
_CHUNK = 8192


class CAMP(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """Learn categories from few labels and many pictures, batch by batch, and find new ones.

    X are pictures: paths, Pillow images or uint8 arrays (H, W, 3) or (H, W), in a list, or an array of n of them; with
    `backbone="embeddings"` vectors (n, D) of any kind. y are labels: names or whole numbers from 0 on, the same kind
    in every call; -1, None and NaN mean unlabelled, and so does leaving y out. A batch may hold old categories,
    labelled or not, and is not needed again once it is learned.

    Every row counts, also if it equals another one of this batch or of an earlier one.

    `predict` answers with labels. A discovered category without a name is called `category 7` by its id, or -8,
    which is -id - 1, where labels are numbers.

    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> X, digits = load_digits(return_X_y=True)
    >>> X, digits = X[:600], digits[:600]
    >>> labels = np.where(np.arange(600) % 3 == 0, digits, -1)  # a third is labelled,
    >>> labels[digits == 7] = -1  # and of the sevens none
    >>> model = CAMP(backbone="embeddings", new=1).fit(X, labels)
    >>> print([category.label for category in model.categories_ if category.origin == "discovered"])
    [-11]
    >>> model.rename(-11, 7).score(X, digits) > 0.9
    True

    Parameters
    ----------
    backbone : str or None
        efficientnet-lite0, vit-s16, vit-s14 and others (see `camp.nn.backbones.settings`), or embeddings for vectors. None:
        what `weights` are of.
    weights : str or None
        A file or a name of weights; None: those that belong to the backbone.
    resolution : int or None
        Side in pixels that pictures are brought to; None: the backbone's.
    device : str
        Where it runs, as torch names it.
    new : int or None
        Categories to be discovered in a batch; None estimates them.
    epochs : int or None
        Passes of training over a batch; None: by its size, and none over vectors.
    views : int or None
        Augmented views of a picture for training; None: by the size of the batch.
    unknown : bool
        Whether `predict` may answer that a picture is none of the categories: "unknown", or -1 among numbers.
    seed : int
        Of everything random: the same seed gives the same numbers.
    verbose : bool
        Whether progress is shown.

    `backbone`, `weights`, `resolution`, `device` and `seed` count from the first batch to the next `fit`.

    Attributes
    ----------
    classes_ : array (K,)
        What `predict` can answer (but for unknown), sorted; the columns of `predict_proba`.
    categories_ : list of FoundCategory
        The categories, by id.
    n_features_in_ : int
        D, for vectors.
    """

    def __init__(
        self,
        backbone: str | None = "efficientnet-lite0",
        weights: str | None = None,
        resolution: int | None = None,
        device: str = "cpu",
        new: int | None = None,
        epochs: int | None = None,
        views: int | None = None,
        unknown: bool = False,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.backbone = backbone
        self.weights = weights
        self.resolution = resolution
        self.device = device
        self.new = new
        self.epochs = epochs
        self.views = views
        self.unknown = unknown
        self.seed = seed
        self.verbose = verbose

    # Learning.

    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget everything, then learn a batch."""
        return self._learn(None, X, y)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Self:
        """Learn one more batch. `classes`, which scikit-learn gives, are not needed: categories may appear at any time."""
        return self._learn(self._held if self.__sklearn_is_fitted__() else None, X, y)

    def _learn(self, held: Held | None, X: Any, y: Any) -> Self:
        if self.new is not None and self.new < 0:
            raise NotUsable(f"new counts categories and can not be {self.new}; 0 means that there are none.")
        settings = held.settings if held else self._settings()
        reader: GivenImages | VectorReader
        if settings.backbone.backbone == VECTORS:
            x = self._vectors(X, reset=held is None)
            settings = dataclasses.replace(settings, backbone=settings.backbone.with_dim(x.shape[1]))
            keys = files = [f"row {row}" for row in range(len(x))]
            reader = VectorReader(tuple(keys), x)
        else:
            reader = GivenImages(X)
            keys, files = reader.keys, [reader.file(key) for key in reader.keys]
        told = read_labels(y, len(keys))
        if held and told.numbers is not None and held.knowledge.named() and told.numbers != in_numbers(held):
            kind = "numbers" if told.numbers else "names"
            raise NotUsable(f"The labels are {kind}, and were not before; give the same kind in every batch.")
        # Vectors may be anything: they are trained on only where that is asked for.
        labelled = (
            0 if settings.backbone.backbone == VECTORS else sum(name is not None for name in told.names)
        )
        self._hold(
            teach(
                held,
                settings,
                Given(reader, keys, files, told),
                new=self.new,
                chosen=plan(len(keys), labelled, self.epochs, self.views),
                progress=Progress(quiet=not self.verbose),
            )
        )
        return self

    def _settings(self) -> WorkspaceSettings:
        backbone = BackboneSettings(
            backbone=self.backbone, weights=self.weights, resolution=self.resolution, device=self.device
        )
        return WorkspaceSettings(backbone, int(self.seed))

    def _vectors(self, x: Any, reset: bool) -> np.ndarray:
        """(n, D) float32; scikit-learn's own words for what is none."""
        return validate_data(self, x, reset=reset, dtype=np.float32, order="C")

    def _hold(self, held: Held) -> None:
        """`held` is what is known from now on."""
        self._held = held
        self._model = recogniser(held.knowledge, held.backbone)
        numbers = in_numbers(held)
        labels = np.array(
            [label_of(id, name, numbers) for id, name in zip(self._model.ids, self._model.names)]
        )
        self._columns = np.argsort(labels)
        self.classes_ = labels[self._columns]
        self._n_features_out = self._model.metric.projection.shape[1]

    # Recognising.

    def predict(self, X: Any) -> np.ndarray:
        """(n,) the label of the nearest category, or where `unknown` is set perhaps -1 or "unknown"."""
        z = self._points(X)
        answers = self._model.classifier.answer(z)
        labels = self.classes_[np.argsort(self._columns)[answers.nearest.numpy()]]
        if self.unknown:
            labels = np.where(answers.unknown.numpy(), -1 if in_numbers(self._held) else UNKNOWN, labels)
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, K) probabilities of the categories, in the order of `classes_`."""
        z = self._points(X)
        logits = self._model.classifier.log_probabilities(z)[:, self._columns]
        return torch.softmax(logits.double(), dim=1).numpy()

    def transform(self, X: Any) -> np.ndarray:
        """(n, d) float32 points; distances between them are what categories are told apart by."""
        return self._points(X).numpy()

    def _points(self, X: Any) -> Tensor:
        check_is_fitted(self)
        if self._held.settings.backbone.backbone == VECTORS:
            x = torch.from_numpy(self._vectors(X, reset=False))
            device = next(self._model.backbone.tip.parameters()).device
            return torch.cat([self._model.points({"vector": part.to(device)}) for part in x.split(_CHUNK)])
        reader = GivenImages(X)
        found = []
        for point in points(self._model, reader, reader.keys):
            if isinstance(point, Unreadable):
                raise NotUsable(f"{reader.file(point.file)} can not be read: {point.reason}.")
            found.append(point)
        return torch.stack(found)

    # Categories.

    @property
    def categories_(self) -> list[FoundCategory]:
        """The categories, by id."""
        check_is_fitted(self)
        return found_categories(self._held)

    def rename(self, category: Label, name: Label | None) -> Self:
        """Call a category `name`; None takes its name away.

        Categories are named as `predict` answers: by label, or where labels are names also by id.
        """
        check_is_fitted(self)
        new = None if name is None else name_from(self._held, name)
        event = {"kind": "named", "category": id_of(self._held, category), "name": new}
        self._hold(self._held.decided(event))
        return self

    def merge(self, category: Label, into: Label) -> Self:
        """`category` and `into` are the same kind, which goes by the label of `into` if that has a name."""
        check_is_fitted(self)
        pair = {"category": id_of(self._held, category), "into": id_of(self._held, into)}
        self._hold(self._held.decided({"kind": "merged", **pair}))
        return self

    # On disk.

    def save(self, folder: str | Path) -> Self:
        """Write a workspace, which `camp status`, `camp review`, `camp predict` and `CAMP.load` open.

        `folder` is new, or the one that this was loaded from or saved to; then what happened since is added.
        """
        check_is_fitted(self)
        self._held = workspaces.save(self._held, Path(folder))
        return self

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """What a workspace knows, whether `camp learn` or `save` made it."""
        held = workspaces.load(Path(folder))
        settings, seed = held.settings.backbone, held.settings.seed
        model = cls(settings.backbone, settings.weights, settings.resolution, settings.device, seed=seed)
        if settings.dim is not None:
            model.n_features_in_ = settings.dim
        model._hold(held)
        return model

    # What scikit-learn asks.

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_held")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.backbone == VECTORS
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = []
        return tags
