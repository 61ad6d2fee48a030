"""IGCD: Incremental Generalized Category Discovery (Zhao and Mac Aodha, ICCV 2023).

    p(x)  = sum_{j in S} softmax_j( h(x).h_j / tau ) y_j                    soft nearest neighbours, unit-length h
    L_SNN = (1 - beta) (L_pseudo(p) + epsilon L_entropy(p)) + beta (-log p_y)
    L     = L_SimGCD + w r(epoch) L_SNN,   r(e) = exp(-5 (1 - e/R)^2)
    f(x)  = argmax_k p_k(x)

S, the support set, consists of images with categories: of each category those of the highest
density, density peaks first. They are kept as images, so that their features follow the tip, and
are replayed with the labelled ones. Differences from the authors' code:

- Categories. There, each unlabelled density peak opens a category, and categories are matched
  afterwards. Here the number of novel categories is given or estimated, semi-supervised k-means
  finds them, and S is chosen among their members: before training, for L_SNN, and after it, to be
  kept. After the peaks the next densest images fill S, where the authors draw at random
  (docs/results.md, "Defaults chosen by measurement").
- L_SNN. There, p is divided by a temperature and put through a softmax as if it were logits, which
  flattens all but the most certain predictions. Here the loss of a label is -log p_y, and the
  teacher is p^(tau_s / tau_t), normalised.
- Replay. There, only labelled peaks are replayed; here all of S is, as CAMP's authors describe it.
- Training is that of the other methods. There it is SGD at 0.03 on the last two blocks of a ViT-B,
  with a warm-up of the teacher's temperature over 10 epochs instead of 3, and a ramp over the first
  50 of 200 epochs; here R is half of the epochs, which is 50 of 100. S has 3 images of a category
  there, and the 20 of the paper's comparison here.

Prototypes and projector are SimGCD's: persistent and growing. After training, a discovered category
takes the novel prototype that is nearest to it, so that replay continues with what the prototype
has learned.
"""

from dataclasses import replace

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.data.tasks import Task
from camp.data.views import Views
from camp.discovery.base import DiscoveryResult
from camp.discovery.density import densest, density
from camp.discovery.hungarian import match
from camp.discovery.nearest_centroid import NearestCentroid
from camp.discovery.soft_nearest_neighbour import SoftNearestNeighbour
from camp.methods.base import BuildContext, MethodState
from camp.methods.components import TaskRun
from camp.methods.exemplars import ExemplarMemory
from camp.methods.gccd.parametric import ParametricMethod, PrototypeRows, feature_batch
from camp.methods.gccd.settings import IgcdSettings
from camp.methods.gccd.simgcd import SimgcdObjective
from camp.methods.trainer import Trainer, TrainingData, clean_features
from camp.methods.two_views import TwoViewStep
from camp.nn.losses import balanced, cross_entropy, mean_entropy, pseudo_label, rampup, teacher_temperature

_STUDENT_TEMPERATURE = 0.1
"""Temperature of the losses on p; only its ratio to the teacher's matters."""


class IgcdObjective(SimgcdObjective):
    """L_SimGCD + w r(epoch) L_SNN."""

    def __init__(self, settings: IgcdSettings, dim: int, prototypes: int, generator: torch.Generator) -> None:
        super().__init__(settings, dim, prototypes, generator, persistent=True)
        self.snn = settings
        self.present = torch.empty(0, dtype=torch.long)
        self.neighbours = SoftNearestNeighbour(torch.empty(0, dim), self.present, 0)

    def set_support(self, support: Tensor, rows: Tensor) -> None:
        """Use features `support` (m, D) of images with prototypes `rows` (m,) as neighbours from now on."""
        device = self.prototypes.weight.device
        self.present, columns = rows.to(device).unique(return_inverse=True)
        self.neighbours = SoftNearestNeighbour(
            support.to(device), columns, len(self.present), self.snn.snn_temperature
        )

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the loss for features z (2, B, D); every label is in the support set."""
        terms = super().forward(z, num_task_images, labels, epoch)
        s, p = self.snn, self.neighbours.probabilities(z)
        # softmax(logits / tau_s) is p itself, softmax(logits / tau_t) the sharpened p of the teacher.
        logits = _STUDENT_TEMPERATURE * p.clamp_min(torch.finfo(p.dtype).tiny).log()
        terms["snn_pseudo"] = pseudo_label(logits, teacher_temperature(epoch), _STUDENT_TEMPERATURE)
        terms["snn_entropy"] = mean_entropy(logits, _STUDENT_TEMPERATURE)
        columns = torch.searchsorted(self.present, labels)
        terms["snn_ce"] = cross_entropy(logits[:, num_task_images:], columns, _STUDENT_TEMPERATURE)
        l_ssl = terms["snn_pseudo"] + s.entropy_weight * terms["snn_entropy"]
        weight = s.snn_weight * rampup(epoch, s.rampup * s.training.epochs)
        terms["loss"] = terms["loss"] + weight * balanced(l_ssl, terms["snn_ce"], s.beta)
        return terms


class Igcd(ParametricMethod):
    """Soft nearest neighbours over a support set of images."""

    def __init__(self, context: BuildContext, settings: IgcdSettings) -> None:
        super().__init__(context, settings)
        self.settings = settings
        self.support: tuple[Views, Tensor] | None = None
        """Support set of the task under way: images, and the rows (m,) of their prototypes."""
        self.discovered = ExemplarMemory(0)
        """Support of discovered categories, labelled by position; `exemplars` is that of known classes."""
        self.image_memories["discovered"] = self.discovered
        self._classifier: SoftNearestNeighbour | None = None

    def _make_trainer(self, run: TaskRun, progress: Progress) -> Trainer:
        """Choose a support set by the features before training; the one kept so far is added and replayed."""
        self._classifier = None
        rows = self._decide_number(run, progress)
        task, views = run.task, run.task.views
        features = clean_features(self.tip, views, progress)
        result = self.discoverer.discover(feature_batch(run, features), progress)
        clusters = rows.of_task_categories()[result.assignments]
        chosen = self._choose(task, rows, features, clusters)
        kept = self._kept()
        self.support = kept.behind(views.subset(chosen), clusters[chosen])
        data = TrainingData(*kept.behind(views, rows.of(task.labels)), len(task))
        draw = generator(self.seed, "heads", task.index)
        objective = IgcdObjective(self.settings, self.dim, rows.total, draw)
        return self._trainer(run, TwoViewStep(objective), data)

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Give the objective the features of the support set under the present tip, then train."""
        trainer = self._current_run().trainer
        assert trainer is not None
        assert self.support is not None
        assert isinstance(trainer.step.objective, IgcdObjective)
        views, rows = self.support
        trainer.step.objective.set_support(clean_features(self.tip, views, Progress(quiet=True)), rows)
        return super().train_epoch(epoch)

    def _conclude(self, run: TaskRun, progress: Progress) -> None:
        """Enter clusters as categories, and keep the densest of their images as support."""
        task, rows = run.task, PrototypeRows.of_task(self.categories, run.task)
        features = clean_features(self.tip, task.views, progress)
        result = self.discoverer.discover(feature_batch(run, features), progress)
        clusters = _by_prototype(result, self._prototypes(run)[rows.first_novel :])
        chosen = self._choose(task, rows, features, rows.of_task_categories()[clusters])
        self._enter(task, result.labels, clusters)
        self.discovery = replace(result, assignments=clusters, estimate=self._estimate)
        known = chosen[task.labels[chosen] != UNLABELLED]
        novel = chosen[task.labels[chosen] == UNLABELLED]
        self.exemplars.add(task.views.subset(known), task.labels[known])
        self.discovered.add(task.views.subset(novel), self._assigned[novel])
        self._classifier = None

    def _choose(self, task: Task, rows: PrototypeRows, features: Tensor, clusters: Tensor) -> Tensor:
        """Choose images (m,) of a task for the support set: labelled ones, and those of novel categories."""
        certain = (task.labels != UNLABELLED) | (clusters >= rows.first_novel)
        eligible = torch.where(certain, clusters, UNLABELLED)
        return densest(density(features, self.settings.neighbours), eligible, self.settings.exemplars)

    def _kept(self) -> ExemplarMemory:
        """Return the support set so far, labelled by position in `categories`."""
        both = ExemplarMemory(0)
        for memory in (self.discovered, self.exemplars):
            if memory.views is not None and memory.labels is not None:
                known = memory is self.exemplars
                both.add(memory.views, self._positions(memory.labels) if known else memory.labels)
        return both

    def _positions(self, labels: Tensor) -> Tensor:
        """Return the positions (n,) of the categories of labels (n,)."""
        at = {category.label: i for i, category in enumerate(self.categories)}
        return torch.tensor([at[label] for label in labels.tolist()], dtype=torch.long)

    def predict(
        self, features: Tensor, allowed: Tensor | None = None, centroids: Tensor | None = None
    ) -> Tensor:
        """Return the position (n,) of the most probable category of the soft nearest neighbours."""
        if self._classifier is None:
            kept = self._kept()
            assert kept.views is not None
            assert kept.labels is not None
            support = clean_features(self.tip, kept.views, Progress(quiet=True))
            self._classifier = SoftNearestNeighbour(
                support, kept.labels, len(self.categories), self.settings.snn_temperature
            )
        return self._classifier.predict(features, allowed)

    def load_state(self, state: MethodState, task: Task | None, views: Views) -> None:
        """Continue from `state`; the classifier is made again from the support set."""
        self._classifier = None
        super().load_state(state, task, views)


def _by_prototype(result: DiscoveryResult, prototypes: Tensor) -> Tensor:
    """Renumber clusters (n,) so that novel ones follow the order of the novel prototypes nearest to them."""
    known = len(result.labels) - result.n_novel
    nearest = NearestCentroid(prototypes, "cosine")
    number = torch.arange(len(result.centroids))
    for cluster, prototype in match(nearest.distances(result.centroids[known:])):
        number[known + cluster] = known + prototype
    return number[result.assignments]
