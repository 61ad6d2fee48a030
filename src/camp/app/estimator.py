"""CAMP as a scikit-learn estimator, over images or vectors."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from camp.app.inputs.arrays import ArrayImages, ImageReader, Label, read_label
from camp.app.inputs.base import BatchInput, InputError
from camp.app.inputs.vectors import VectorBatch
from camp.app.prediction.model import Model
from camp.app.prediction.predict import UNKNOWN, Unreadable, points
from camp.app.workspace.decisions import Decision, Merged, Named
from camp.app.workspace.knowledge import category_title
from camp.app.workspace.pipeline import VECTORS, LearnRequest, learn_batch
from camp.app.workspace.storage import MemoryStorage, WorkspaceSettings
from camp.app.workspace.workspace import Workspace
from camp.core.progress import Progress
from camp.core.types import FALSE_ALARMS
from camp.nn.backbones.settings import BackboneSettings

Data = Iterable[Any]
"""Images (see `camp.app.inputs.arrays.ImageLike`), or vectors (n, D)."""
_CHUNK = 8192


@dataclass(frozen=True)
class FoundCategory:
    """A category in `CAMP.categories_`."""

    id: int
    label: Label
    """The label that `predict` returns."""
    name: str | None
    """None for a discovered category without a name."""
    origin: Literal["labelled", "discovered", "made"]
    pictures: int
    """Number of images or vectors."""
    step: int
    """The batch, counted from 1, in which it appeared."""


class CAMP(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """Continual category discovery: learn known and new categories from few labels, batch by batch.

    X are images (paths, Pillow images or uint8 arrays (H, W, 3) or (H, W), in a list, or an array of n images), or
    with `backbone="embeddings"` vectors (n, D). y are labels: names or integers from 0, the same type in every call;
    -1, None and NaN mean unlabelled, and so does leaving out y. A batch may contain old categories, labelled or not,
    and is not needed again once it is learned. Duplicate rows count as several rows.

    `predict` returns labels. The label of a discovered category without a name is made from its id: "category 7", or
    -8 (that is -id - 1) where labels are integers.

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
        efficientnet-lite0, vit-s16, vit-s14 and others (see `camp.nn.backbones.settings`), or embeddings for vectors.
        None takes the architecture of `weights`.
    weights : str or None
        A file or a name of weights; None takes the default weights of the backbone.
    resolution : int or None
        Side of the resized images in pixels; None takes that of the backbone.
    device : str
        Device of PyTorch.
    new : int or None
        Number of new categories in a batch; None estimates it.
    epochs : int or None
        Number of training epochs; None chooses by the size of the batch, and 0 for vectors.
    views : int or None
        Augmented views per image for training; None chooses by the size of the batch.
    unknown : bool
        Whether `predict` may return "unknown", or -1 for integers, for images that belong to none of the categories.
    false_alarms : float
        Share of the images of known categories that `predict` may call unknown.
    seed : int
        Random seed.
    verbose : bool
        Whether to show progress.

    Changes of `backbone`, `weights`, `resolution`, `device` and `seed` take effect with the next `fit`.

    Attributes
    ----------
    classes_ : array (K,)
        Labels that `predict` can return (except unknown), sorted; the columns of `predict_proba`.
    categories_ : list of FoundCategory
        The categories, sorted by id.
    n_features_in_ : int
        Length of the vectors.
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
        false_alarms: float = FALSE_ALARMS,
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
        self.false_alarms = false_alarms
        self.seed = seed
        self.verbose = verbose

    # Learning.

    def fit(self, X: Data, y: ArrayLike | None = None) -> Self:
        """Forget everything, then learn a batch."""
        return self._learn(None, X, y)

    def partial_fit(self, X: Data, y: ArrayLike | None = None, classes: ArrayLike | None = None) -> Self:
        """Learn one more batch; `classes` is ignored, since categories may appear at any time."""
        return self._learn(self._workspace if self.__sklearn_is_fitted__() else None, X, y)

    def _learn(self, workspace: Workspace | None, X: Data, y: ArrayLike | None) -> Self:
        if workspace is not None:
            settings = workspace.settings
        else:
            backbone = BackboneSettings(
                backbone=self.backbone, weights=self.weights, resolution=self.resolution, device=self.device
            )
            settings = WorkspaceSettings(backbone, int(self.seed))
        if settings.backbone.backbone == VECTORS:
            x = self._vectors(X, reset=workspace is None)
            settings = dataclasses.replace(settings, backbone=settings.backbone.with_vectors(x))
            batch: BatchInput = VectorBatch.of_array(x, y)
        else:
            batch = ArrayImages.of_images(X, y)
        if workspace is None:
            workspace = Workspace.in_memory(settings)
        elif any(batch.labels) and workspace.knowledge().named() and batch.numeric_labels != self._numeric:
            given = "numbers" if batch.numeric_labels else "names"
            raise InputError(
                f"The labels are {given}, and were not before; give the same type in every batch."
            )
        request = LearnRequest(batch, self.new, self.epochs, self.views)
        learn_batch(workspace, request, Progress(quiet=not self.verbose))
        return self._use(workspace)

    def _vectors(self, x: Data, reset: bool) -> np.ndarray:
        """Return (n, D) float32, or raise the errors of scikit-learn."""
        return np.asarray(validate_data(self, x, reset=reset, dtype=np.float32, order="C"))

    def _use(self, workspace: Workspace) -> Self:
        """Predict with `workspace` from now on."""
        self._workspace = workspace
        self._model = Model.of(workspace.knowledge(), workspace.backbone(), self.false_alarms)
        self._model_false_alarms = self.false_alarms
        # Labels are integers if they were given so, and no category has been named in words since.
        self._numeric = any(report.numeric_labels for report in workspace.reports()) and all(
            name.isascii() and name.isdecimal() and str(int(name)) == name
            for name in workspace.knowledge().named()
        )
        labels = np.array([self._label(id, name) for id, name in zip(self._model.ids, self._model.names)])
        self._columns = np.argsort(labels)
        self.classes_ = labels[self._columns]
        self._n_features_out = self._model.metric.projection.shape[1]
        return self

    # Prediction.

    def predict(self, X: Data) -> np.ndarray:
        """Return the labels (n,) of the nearest categories; with `unknown` perhaps -1 or "unknown"."""
        z = self._points(X)  # checks first that the model is fitted
        if self.false_alarms != self._model_false_alarms:
            self._use(self._workspace)
        answers = self._model.classifier.answer(z)
        labels = self.classes_[np.argsort(self._columns)[answers.nearest.numpy()]]
        if self.unknown:
            labels = np.where(answers.unknown.numpy(), -1 if self._numeric else UNKNOWN, labels)
        return np.asarray(labels)

    def predict_proba(self, X: Data) -> np.ndarray:
        """Return the probabilities (n, K) of the categories, in the order of `classes_`."""
        z = self._points(X)
        logits = self._model.classifier.log_probabilities(z)[:, self._columns]
        return torch.softmax(logits.double(), dim=1).numpy()

    def transform(self, X: Data) -> np.ndarray:
        """Return points (n, d) float32, whose distances separate the categories."""
        return self._points(X).numpy()

    def _points(self, X: Data) -> Tensor:
        check_is_fitted(self)
        if self._workspace.settings.backbone.backbone == VECTORS:
            parts = torch.from_numpy(self._vectors(X, reset=False)).split(_CHUNK)
            device = self._model.backbone.device
            return torch.cat([self._model.points({"vector": part.to(device)}) for part in parts])
        reader = ImageReader(X)
        found = []
        for point in points(self._model, reader, reader.keys):
            if isinstance(point, Unreadable):
                raise InputError(f"{reader.file(point.file)} cannot be read: {point.reason}.")
            found.append(point)
        return torch.stack(found)

    # Categories and their labels.

    @property
    def categories_(self) -> list[FoundCategory]:
        """The categories, sorted by id."""
        check_is_fitted(self)
        knowledge = self._workspace.knowledge()
        counts = knowledge.counts()
        return [
            FoundCategory(c.id, self._label(c.id, c.name), c.name, c.origin, counts[c.id], c.step)
            for c in knowledge.live()
        ]

    def rename(self, category: Label, name: Label | None) -> Self:
        """Name a category; None removes its name.

        Args:
            category: Its label, or where labels are names also its id.
            name: The new label: an integer if the others are integers, or a string.
        """
        check_is_fitted(self)
        new = None if name is None else self._name(name)
        return self._decide(Named(category=self._id(category), name=new))

    def merge(self, category: Label, into: Label) -> Self:
        """Merge `category` into `into`, which keeps its label if it has a name."""
        check_is_fitted(self)
        return self._decide(Merged(category=self._id(category), into=self._id(into)))

    def _decide(self, decision: Decision) -> Self:
        self._workspace.decide(decision)
        return self._use(self._workspace)

    def _label(self, id: int, name: str | None) -> Label:
        """Return the label of a category."""
        if not self._numeric:
            return category_title(id, name)
        return int(name) if name is not None else -id - 1

    def _id(self, label: Label) -> int:
        """Return the id of the category with a label."""
        if isinstance(label, np.generic):
            label = label.item()
        if not self._numeric:
            return self._workspace.knowledge().find(label).id
        for category in self.categories_:
            if category.label == label:
                return category.id
        raise InputError(f"No category has the label {label!r}; `categories_` lists them.")

    def _name(self, label: Label) -> str:
        """Return the name that a new label stands for."""
        name, numeric = read_label(label)
        if name is None or numeric != self._numeric:
            expected = "an integer from 0" if self._numeric else "a string"
            raise InputError(
                f"{label!r} cannot name a category here; give {expected}, as the other labels are."
            )
        return name

    # On disk.

    def save(self, folder: str | Path) -> Self:
        """Write a workspace, which `camp status`, `camp review`, `camp predict` and `CAMP.load` open.

        Args:
            folder: A new folder; or the one that this was loaded from or saved to, to which new events are added.
        """
        check_is_fitted(self)
        storage = self._workspace.storage
        assert isinstance(storage, MemoryStorage)
        storage.save(Path(folder))
        return self

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a workspace, whether `camp learn` or `save` made it."""
        workspace = Workspace(MemoryStorage.load(Path(folder)))
        backbone, seed = workspace.settings.backbone, workspace.settings.seed
        model = cls(backbone.backbone, backbone.weights, backbone.resolution, backbone.device, seed=seed)
        if backbone.dim is not None:
            model.n_features_in_ = backbone.dim
        return model._use(workspace)

    # Hooks of scikit-learn.

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_workspace")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.backbone == VECTORS
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = []
        return tags
