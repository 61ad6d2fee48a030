"""Official class names, in the order of the official label ids."""

import functools
import json
from importlib import resources


@functools.cache
def official_names(dataset: str) -> tuple[str, ...]:
    """Class names of `cifar10`, `cifar100`, `stanford_cars` or `fgvc_aircraft`.

    >>> len(official_names("stanford_cars")), official_names("fgvc_aircraft")[0]
    (196, '707-320')
    """
    text = resources.files("camp.data.datasets").joinpath("class_names.json").read_text(encoding="utf-8")
    return tuple(json.loads(text)[dataset])
