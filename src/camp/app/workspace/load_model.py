"""What a workspace has learned, ready to be used: its backbone with the trained tip, and the model of its categories."""

from camp.app.workspace.folder import Workspace
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.model import Model
from camp.app.workspace.overview import open_set_of
from camp.app.workspace.steps import load_tip
from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.nn.backbones import make_backbone
from camp.nn.backbones.base import Backbone


def open_model(workspace: Workspace) -> Model:
    """What recognises pictures now, with every decision since the last batch."""
    events = len(workspace.events())
    try:
        knowledge = workspace.knowledge()
        return recogniser(knowledge, open_backbone(workspace, knowledge.step))
    except CampError:
        if len(workspace.events()) == events:
            raise
        return open_model(
            workspace
        )  # another process has learned meanwhile, and dropped what this one was reading


def open_backbone(workspace: Workspace, step: int) -> Backbone:
    """The backbone with the tip that learning step `step` trained."""
    backbone = make_backbone(workspace.settings.backbone, generator(workspace.settings.seed, "backbone"))
    load_tip_into(workspace, backbone, step)
    return backbone


def recogniser(knowledge: Knowledge, backbone: Backbone) -> Model:
    """The categories of `knowledge`, in the feature space of `backbone`."""
    ids, classifier = open_set_of(knowledge)
    return Model(
        backbone, knowledge.metric, classifier, ids, tuple(knowledge.categories[id].name for id in ids)
    )


def load_tip_into(workspace: Workspace, backbone: Backbone, step: int) -> None:
    """Give `backbone` the tip of a learning step; another trunk than it was trained on is refused."""
    trunk = next(event["trunk"] for event in workspace.learned() if event["step"] == step)
    if trunk != backbone.fingerprint:
        raise CampError(
            f"The weights of {backbone.name} are not those that {workspace.path} has learned with; put the old file back."
        )
    backbone.tip.load_state_dict(load_tip(workspace.step_folder(step)))
