"""`camp methods`: list the methods."""

from camp.core.errors import CampError


def methods(words: list[str]) -> int:
    """Carry out the command."""
    from camp.methods.registry import METHODS, methods_for

    if words and words[0] not in ("-h", "--help"):
        raise CampError(f'camp methods does not know "{words[0]}"; it lists the methods.')
    print("For every setting (camp run --method all):")
    for name in methods_for(labelled=False):
        print(f"  {name:14} {METHODS[name].title}")
    print(
        "\nFor class-incremental learning, where every image is labelled (camp run --method all --setting cil):"
    )
    for name in methods_for(labelled=True):
        print(f"  {name:14} {METHODS[name].title}")
    return 0
