"""IGCD: Incremental Generalized Category Discovery (Zhao and Mac Aodha, ICCV 2023).

    p(x)  = sum_{j in S} softmax_j( h(x).h_j / tau ) y_j                    soft nearest neighbours, unit-length h
    L_SNN = (1 - beta) (L_pseudo(p) + epsilon L_entropy(p)) + beta (-log p_y)
    L     = L_SimGCD + w r(epoch) L_SNN,   r(e) = exp(-5 (1 - e/R)^2)
    f(x)  = argmax_k p_k(x)

S, the support set, is pictures with categories: of each category those in the densest places, density peaks first.
They are kept for ever as pictures, so their features move along with the tip, and they are replayed with the
labelled ones. Where this differs from the authors' code:

- Categories. There each unlabelled density peak opens a category, and they are matched afterwards. Here a task has
  as many novel categories as are told or estimated, so semi-supervised k-means finds them and S is chosen among
  their members: before training, for L_SNN, and again after it, for good. Behind the peaks the next
  densest pictures fill up S, where the authors draw at random. With frozen features on CUB-200, one run each, test
  accuracies: 43.4 against 37.9 % with 5 pictures a category, 43.0 against 43.3 % with 20, where nearly all
  labelled ones are taken.
- L_SNN. There p is divided by a temperature and put through a softmax as if it were logits, which flattens
  all but the surest answers. Here the loss of a label is -log p_y, and the teacher is p^(tau_s / tau_t), normalised.
- Replay. There only labelled peaks come again; here all of S does, as CAMP's authors describe it.

Prototypes and projector are SimGCD's: they last and grow. After training a discovered category takes the novel
prototype that is nearest to it, so that replay goes on with what the prototype has learned.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.data.views import Views
from camp.discovery.density import densest, density
from camp.discovery.hungarian import match
from camp.discovery.nearest_centroid import NearestCentroid
from camp.discovery.semi_supervised_kmeans import KMeans
from camp.discovery.soft_nearest_neighbour import SoftNearestNeighbour
from camp.methods.base import State
from camp.methods.exemplars import Memory
from camp.methods.gccd.simgcd import PrototypeMethod
from camp.methods.gccd.simgcd_objective import SimgcdObjective
from camp.methods.settings import SimgcdLosses, check_exemplars, check_positive, check_share
from camp.methods.tip_method import part_of
from camp.methods.trainer import Objective, Phase1, clean_features
from camp.nn.backbones.base import Backbone
from camp.nn.losses import balanced, cross_entropy, mean_entropy, pseudo_label, rampup, teacher_temperature

_STUDENT_TEMPERATURE = 0.1
"""Of the losses on p; only its ratio to the teacher's matters."""


@dataclass(frozen=True)
class IgcdSettings(SimgcdLosses):
    """IGCD with the authors' numbers."""

    exemplars: int = 20
    """Pictures of each category in the support set; they are kept for later tasks."""
    neighbours: int = 10
    """k, the pictures around a picture that its density is measured by."""
    snn_temperature: float = 0.1
    """tau of the soft nearest neighbours."""
    snn_weight: float = 0.2
    """w, the weight of L_SNN."""
    rampup: float = 0.5
    """R, in which the weight of L_SNN grows, as a share of the epochs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exemplars(self.exemplars, least=1)
        check_positive("neighbours", self.neighbours)
        check_positive("snn_temperature", self.snn_temperature)
        check_share("rampup", self.rampup)


class IgcdObjective(SimgcdObjective):
    """L_SimGCD + w r(epoch) L_SNN."""

    def __init__(self, settings: IgcdSettings, dim: int, prototypes: int, generator: torch.Generator) -> None:
        super().__init__(settings, dim, prototypes, generator, lasting=True)
        self.snn = settings
        self.present = torch.empty(0, dtype=torch.long)
        self.neighbours = SoftNearestNeighbour(torch.empty(0, dim), self.present, 0)

    def look_at(self, support: Tensor, rows: Tensor) -> None:
        """Use features `support` (m, D) of pictures with prototypes `rows` (m,) as neighbours from now on."""
        device = self.prototypes.weight.device
        self.present, columns = rows.to(device).unique(return_inverse=True)
        self.neighbours = SoftNearestNeighbour(
            support.to(device), columns, len(self.present), self.snn.snn_temperature
        )

    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """z (2, B, D); the pictures from `own` on have `labels`, each of a category in the support set."""
        terms = super().forward(z, own, labels, epoch)
        s, p = self.snn, self.neighbours.probabilities(z)
        # softmax(logits / tau_s) is p itself, softmax(logits / tau_t) the sharpened p of the teacher.
        logits = _STUDENT_TEMPERATURE * p.clamp_min(torch.finfo(p.dtype).tiny).log()
        terms["snn_pseudo"] = pseudo_label(logits, teacher_temperature(epoch), _STUDENT_TEMPERATURE)
        terms["snn_entropy"] = mean_entropy(logits, _STUDENT_TEMPERATURE)
        columns = torch.searchsorted(self.present, labels)
        terms["snn_ce"] = cross_entropy(logits[:, own:], columns, _STUDENT_TEMPERATURE)
        l_ssl = terms["snn_pseudo"] + s.entropy_weight * terms["snn_entropy"]
        weight = s.snn_weight * rampup(epoch, s.rampup * s.training.epochs)
        terms["loss"] = terms["loss"] + weight * balanced(l_ssl, terms["snn_ce"], s.beta)
        return terms


class Igcd(PrototypeMethod):
    """Soft nearest neighbours over a support set that is kept as pictures."""

    def __init__(self, backbone: Backbone, settings: IgcdSettings, seed: int, device: torch.device) -> None:
        super().__init__(backbone, settings.training, settings.discovery, seed, device)
        self.settings = settings
        self.discovered = Memory(0)
        """Support of discovered categories, with their positions for labels; `memory` is that of known classes."""
        self._support: tuple[Views, Tensor]
        self._classifier: SoftNearestNeighbour | None = None

    def _prepare(self, progress: Progress) -> Phase1:
        """A support set from the features before training, and the one kept so far, which is also replayed."""
        self._settle(progress)
        self._classifier = None
        task, views = self._current(), self._current().views
        labels = self._rows(task.labels)
        features = clean_features(self.tip, views, progress)
        result = self._cluster(features, progress)
        rows = self._own_rows()[result.assignments]
        chosen = self._choose(features, rows)
        support, kinds = views.subset(chosen), rows[chosen]
        kept = self._kept()
        if kept is not None:
            views, labels = views.joined(kept[0]), torch.cat([labels, kept[1]])
            support, kinds = support.joined(kept[0]), torch.cat([kinds, kept[1]])
        self._support = support, kinds
        return self._phase(views, labels)

    def _objective(self, prototypes: int, generator: torch.Generator) -> Objective:
        return IgcdObjective(self.settings, self.dim, prototypes, generator)

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Phase 1, one epoch, among neighbours as the tip sees them at its beginning."""
        objective = self._training().objective
        assert isinstance(objective, IgcdObjective)
        views, rows = self._support
        objective.look_at(clean_features(self.tip, views, Progress(quiet=True)), rows)
        return super().train_epoch(epoch)

    def _conclude(self, progress: Progress) -> None:
        """Clusters become categories, and the densest of their pictures their support."""
        task = self._current()
        features = clean_features(self.tip, task.views, progress)
        result = self._cluster(features, progress)
        self.found["curve"] = self._curve
        clusters = self._by_prototype(result)
        chosen = self._choose(features, self._own_rows()[clusters])
        self._enter([*result.known_labels, *[None] * self._n_novel()], clusters)
        known = chosen[task.labels[chosen] != UNLABELLED]
        novel = chosen[task.labels[chosen] == UNLABELLED]
        self.memory = self.memory.joined(task.views.subset(known), task.labels[known])
        self.discovered = self.discovered.joined(task.views.subset(novel), self._assigned[novel])
        self._classifier = None

    def _by_prototype(self, result: KMeans) -> Tensor:
        """(n,) clusters, the novel ones in the order of the prototypes nearest to them."""
        known = len(result.known_labels)
        prototypes = NearestCentroid(self._prototypes_now()[self._first_novel() :], "cosine")
        number = torch.arange(len(result.centroids))
        for cluster, prototype in match(prototypes.distances(result.centroids[known:])):
            number[known + cluster] = known + prototype
        return number[result.assignments]

    def _choose(self, features: Tensor, rows: Tensor) -> Tensor:
        """(m,) pictures of the task for the support set: labelled ones, and those of novel categories."""
        sure = (self._current().labels != UNLABELLED) | (rows >= self._first_novel())
        eligible = torch.where(sure, rows, UNLABELLED)
        return densest(density(features, self.settings.neighbours), eligible, self.settings.exemplars)

    def _kept(self) -> tuple[Views, Tensor] | None:
        """The support set so far: pictures and their positions in `categories`."""
        both = self.discovered
        if self.memory.views is not None and self.memory.labels is not None:
            both = both.joined(self.memory.views, self._rows(self.memory.labels))
        return None if both.views is None or both.labels is None else (both.views, both.labels)

    def predict(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The likeliest category among the soft nearest neighbours."""
        if self._classifier is None:
            kept = self._kept()
            assert kept is not None
            support = clean_features(self.tip, kept[0], Progress(quiet=True))
            self._classifier = SoftNearestNeighbour(
                support, kept[1], len(self.categories), self.settings.snn_temperature
            )
        return self._classifier.predict(features, allowed)

    def state(self) -> State:
        """Also the support of discovered categories."""
        state = super().state()
        mine = {
            key.replace("memory.", "discovered.", 1): value for key, value in self.discovered.state().items()
        }
        return State(state.tensors | mine, state.values)

    def _restore(self, state: State, views: Views) -> None:
        mine = {f"memory.{key}": value for key, value in part_of(state.tensors, "discovered.").items()}
        self.discovered = Memory(0).restored(mine, views)
        self._classifier = None


def make_igcd(backbone: Backbone, settings: IgcdSettings, seed: int, device: torch.device) -> Igcd:
    """IGCD with its support set."""
    return Igcd(backbone, settings, seed, device)
