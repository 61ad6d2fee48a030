"""EWC: elastic weight consolidation (Kirkpatrick et al., PNAS 2017), online: one F for all tasks so far.

    L = L_CE + lambda / 2 sum_i F_i (theta_i - theta*_i)^2
    F <- a F + (1 - a) F_t,    F_t = 1/n sum_(x, y) ( d log p(y | x) / d theta )^2     over the images of the task

F is 0 before the first task.

L_CE and p are over the classes of the task. theta are the parameters of the network without the classifier. The
hyperparameters are FACIL's, which the paper ran: a = 1/2 and lambda = 5000. FACIL squares the mean gradient of a batch
of 64 where the equation has the gradient of an image, and the mean of 64 independent ones has a 64th of the square, so
the same strength is lambda = 5000 / 64 here. FACIL also uses the predicted class in place of the label in F_t; here it
is the label, the empirical Fisher information.
"""

from camp.methods.base import BuildContext
from camp.methods.cil.base import IncrementalMethod
from camp.methods.cil.fine_tune import FineTuneObjective
from camp.methods.cil.settings import EwcSettings
from camp.methods.consolidation import Classifier, ElasticWeightConsolidation
from camp.methods.trainer import Objective


def _classifier(objective: Objective) -> tuple[Classifier, int]:
    assert isinstance(objective, FineTuneObjective)
    return objective.new_logits, objective.old


def make_ewc(context: BuildContext, settings: EwcSettings) -> IncrementalMethod:
    """Make EWC: Fine-tune with the penalty."""
    kept = settings.fisher_kept
    consolidation = ElasticWeightConsolidation(settings.ewc, _classifier, decay=kept, weight=1 - kept)
    return IncrementalMethod(context, settings.training, FineTuneObjective, callbacks=[consolidation])
