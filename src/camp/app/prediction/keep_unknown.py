"""Keep the unknown images of predictions in a workspace."""

import numpy as np
from PIL import Image
from torch import Tensor

from camp.app.prediction.model import Model
from camp.app.prediction.predict import Keep
from camp.app.workspace.kept_unknown import BLOCK, UnknownKeeper
from camp.app.workspace.storage import FolderStorage
from camp.app.workspace.thumbnails import SIDE, encode_thumbnail, save_thumbnail
from camp.app.workspace.workspace import Workspace
from camp.core.abandoned import remove_abandoned
from camp.core.errors import CampError
from camp.data.images import decode_image


def unknown_keeper(workspace: Workspace, block: int = BLOCK) -> UnknownKeeper:
    """Make the keeper of a workspace, which must be in a folder that can be written to."""
    storage = workspace.storage
    if not isinstance(storage, FolderStorage):
        raise CampError("Only a workspace in a folder keeps unknown pictures; save it first.")

    def thumbnail(image: Image.Image, digest: bytes) -> None:
        path = storage.thumbnail(digest)
        if storage.settings.thumbnails and not path.exists():
            save_thumbnail(encode_thumbnail(image), path)

    remove_abandoned(storage.unknown)
    return UnknownKeeper(storage.unknown, thumbnail, block)


def keep_with(keeper: UnknownKeeper, model: Model) -> Keep:
    """Return the function that keeps the unknown images of `model`."""

    def keep(file: str, data: bytes, features: Tensor) -> None:
        if (
            model.backbone.resolution
        ):  # half precision as in the learning steps; the range of vectors is not known
            image = decode_image(data, min_size=SIDE)
            keeper.keep(model.tip_fingerprint, file, data, image, features.numpy().astype(np.float16))
        else:
            keeper.keep(model.tip_fingerprint, file, data, None, features.numpy())

    return keep
