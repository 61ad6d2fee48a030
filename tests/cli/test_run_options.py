"""The words of `camp run` as the settings of one run, or as a comparison of methods."""

import pytest

from camp.bench.settings import RunSettings, from_flat, option_names
from camp.bench.studies.comparison import methods_without
from camp.cli.run import RunRequest, methods_named, parse
from camp.core.errors import CampError
from camp.methods.registry import METHODS


def settings_of(request: RunRequest) -> list[RunSettings]:
    """Return the settings of all runs."""
    if request.study is None:
        assert request.settings is not None
        return [request.settings]
    return [point.settings for point in request.study.points()]


def lines_without(request: RunRequest) -> list[str]:
    """Return the lines about options that some methods do not have."""
    assert request.study is not None
    return methods_without(request.study)


def test_methods_are_named_alone_in_a_list_or_all() -> None:
    assert methods_named("camp") == ["camp"]
    assert methods_named("gcd,camp") == methods_named("gcd, camp") == ["gcd", "camp"]
    assert methods_named("all") == [name for name, info in METHODS.items() if not info.supervised]
    with pytest.raises(CampError, match="--method names gcd twice"):
        methods_named("gcd,camp,gcd")
    for wrong in ("gcd,", "gcd,nope", "gcd,all"):
        with pytest.raises(CampError, match="There is no method"):
            methods_named(wrong)


def test_all_are_those_of_the_setting() -> None:
    assert set(methods_named("all", "cil")) == {
        *("fine-tune", "gcd", "ewc", "lwf", "pass", "il2a", "ssre", "fetril", "camp", "joint"),
    }
    assert methods_named("all", "semi-cl") == methods_named("all", "gccd") == methods_named("all")


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ("", "gccd"),
        ("--setting semi-cl", "semi-cl"),
        ("--setting cil --labelled-fraction 0.9", "cil"),
        ("--setting cil --novel-fraction 0.2", "cil"),
        ("--setting cgcd", "cgcd"),
    ],
)
def test_a_method_that_needs_all_labels_is_refused_where_some_are_missing(words: str, setting: str) -> None:
    sentence = (
        f"fine-tune is for class-incremental .* which --setting {setting} does not give: use --setting cil"
    )
    for methods in (["fine-tune"], ["camp", "fine-tune"]):
        with pytest.raises(CampError, match=sentence):
            parse(methods, ["--out", "x", *words.split()])


@pytest.mark.parametrize(
    "words", ["--setting cil", "--labelled-fraction 1 --novel-fraction 0", "--split s.json"]
)
def test_and_taken_where_none_is_or_only_the_split_knows(words: str) -> None:
    asked = parse(["fine-tune", "gcd"], ["--out", "x", *words.split()])
    assert [settings.method for settings in settings_of(asked)] == ["fine-tune", "gcd"]


def test_one_method() -> None:
    asked = parse(["gcd"], ["--method", "gcd", "--out", "x", "--epochs", "3", "--quiet", "--seed", "4"])
    assert settings_of(asked) == [from_flat("gcd", {"epochs": 3, "seed": 4})]
    assert (str(asked.out), asked.quiet) == ("x", True)


def test_an_option_goes_to_every_method_that_has_it() -> None:
    words = "--method camp,gcd,pa --out x --seed 2 --tasks 3 --epochs 7 --adapter=sdc --no-supervised --exemplars 5"
    asked = parse(["camp", "gcd", "pa"], words.split())
    common = {"seed": 2, "tasks": 3, "epochs": 7}
    assert settings_of(asked) == [
        from_flat("camp", {**common, "adapter": "sdc", "supervised": False, "exemplars": 5}),
        from_flat("gcd", common),
        from_flat("pa", {**common, "exemplars": 5}),
    ]
    assert lines_without(asked) == [
        "gcd, pa: no --adapter, run without",
        "gcd, pa: no --supervised, run without",
        "gcd: no --exemplars, run without",
    ]


def test_what_is_not_given_is_each_methods_own_default() -> None:
    asked = parse(list(METHODS), ["--out", "x", "--setting", "cil"])
    assert settings_of(asked) == [from_flat(method, {"setting": "cil"}) for method in METHODS]
    assert lines_without(asked) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--exemplar 5", "None of camp, gcd has an option --exemplar; did you mean --exemplars?"),
        ("--imagesperclass=5", "None of camp, gcd has an option --imagesperclass; did you mean --images-per-class?"),
        ("--zyx", "None of camp, gcd has an option --zyx."),
        ("--zyx 1 --zyx 2", "None of camp, gcd has an option --zyx."),
        ("stray", '"stray" belongs to no option; leave it out.'),
        ("--adapter sdc linear", '"linear" belongs to no option; leave it out.'),
        ("--adapter=sdc linear", '"linear" belongs to no option; leave it out.'),
        ("--alpha 2", "With camp: alpha is a share between 0 and 1, not 2.0."),
        ("--beta 2", "With camp: beta is a share between 0 and 1, not 2.0."),
        ("--setting cll", 'There is no setting "cll"; the settings are gccd, cil, ssl-cl, semi-cl, gcd, igcd, cgcd.'),
        ("--dataset digits --classes-per-domain 3", "classes_per_domain is for domainnet, not digits."),
        ("--split s.json --tasks 2", "A given split already decides tasks: leave that out, or the split."),
        ("--epochs three", "epochs takes a whole number, not 'three'."),
        ("--adapter affine", "adapter takes 'none' or 'linear' or 'mlp' or 'trex' or 'sdc', not 'affine'."),
        ("--adapter", "Argument --adapter: expected one argument."),
        ("--augmentations -1", "The number of augmentations cannot be negative, and -1 is."),
        ("--beta 2 --setting cll", 'There is no setting "cll"; the settings are gccd, cil, ssl-cl, semi-cl, gcd, igcd, cgcd.'),
    ],
)  # fmt: skip
def test_mistakes(words: str, said: str) -> None:
    with pytest.raises(CampError) as error:
        parse(["camp", "gcd"], ["--out", "x", *words.split()])
    assert str(error.value) == said


def test_several_methods_need_a_folder() -> None:
    with pytest.raises(CampError, match="add --out FOLDER"):
        parse(["camp", "gcd"], ["--epochs", "3"])


@pytest.mark.parametrize("methods", [["gcd"], ["gcd", "camp"]])
def test_a_path_of_digits_is_a_path(methods: list[str]) -> None:
    asked = parse(methods, ["--out", "x", "--dataset", "folder", "--data", "2023"])
    assert {settings.data.data for settings in settings_of(asked)} == {"2023"}


@pytest.mark.parametrize("words", ["--epochs three", "--seed 1.5", "--epochs", ""])
def test_values_of_one_method_are_checked(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(["gcd"], [*(["--out", "x"] if words else []), *words.split()])
    assert stop.value.code == 2
    assert (words.split() or ["--out"])[0] in capsys.readouterr().err


def test_help_of_several_names_who_takes_what(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(["camp", "gcd", "pa"], ["--method", "camp,gcd,pa", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    own = shown.split("explains them:")[1].strip().split("\n\n")[0]
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in own.splitlines()}
    assert lines["--adapter"] == "camp"
    assert lines["--exemplars"] == "camp, pa"
    assert lines["--epochs"] == "all"
    for method in ("camp", "gcd", "pa"):
        for name in option_names(method, own=True):
            assert f"--{name.replace('_', '-')}" in lines
    assert "one after another: camp, gcd, pa." in " ".join(shown.split())
    assert "--images-per-class" in shown
