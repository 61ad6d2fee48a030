"""`camp datasets`: list the data sets, or download one."""

from camp.core.errors import CampError

HELP = """camp datasets            list all data sets and whether they are present
camp datasets get NAME   download a data set"""


def datasets(words: list[str]) -> int:
    """Carry out the command."""
    from camp.data.datasets import data_folder

    match words:
        case []:
            _list()
        case ["-h" | "--help", *_]:
            print(HELP)
        case ["get", name]:
            from camp.data.datasets.download import download_dataset

            print(download_dataset(name, data_folder(name)))
        case ["get", *_]:
            raise CampError("camp datasets get needs one name; `camp datasets` lists them.")
        case [word, *_]:
            raise CampError(
                f'camp datasets does not know "{word}"; use `camp datasets` or `camp datasets get NAME`.'
            )
    return 0


def _list() -> None:
    from camp.data.datasets import DATASETS, data_folder, is_present

    for name, info in DATASETS.items():
        if info.n_classes is None:
            state, classes = "yours", ""
        else:
            state = "present" if is_present(name, data_folder(name)) else "not here"
            classes = f"{info.n_classes} classes, "
        print(f"{name:16} {info.title} [{state}]")
        print(f"{'':16} {classes}{info.images}, {info.size}; licence: {info.licence}")
        print(f"{'':16} {info.how_to_get}")
