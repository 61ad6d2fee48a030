"""What a study is made of, and where its runs lie."""

from pathlib import Path

import pytest

from camp.bench.settings import from_flat
from camp.bench.studies.addresses import address
from camp.bench.studies.figures import DRAWINGS
from camp.bench.studies.paper_studies import STUDIES
from camp.bench.studies.study import Study, grid, smoke
from camp.bench.studies.toml_study import read_toml_study
from camp.cli.study import run_options_given
from camp.core.errors import CampError

SMALL = Study("small", "Small", grid(method=["camp", "gcd"], beta=[0.2, 0.4]), "table", seeds=(0, 1))


def test_every_row_is_run_with_every_seed():
    points = SMALL.points()
    assert [(p.settings.method, p.settings.settings.beta, p.settings.seed) for p in points] == [
        (method, beta, seed) for method in ("camp", "gcd") for beta in (0.2, 0.4) for seed in (0, 1)
    ]
    assert len({point.address for point in points}) == 8


def test_shared_options_go_to_the_methods_that_have_them():
    study = Study("s", "S", grid(method=["frozen", "camp"]), "table", base={"epochs": 3}, seeds=(0,))
    frozen, camp = study.points()
    assert camp.settings.settings.training.epochs == 3
    assert not hasattr(frozen.settings.settings, "training")


def test_an_option_that_varies_keeps_the_rows_that_have_it_or_is_set_for_all():
    assert [row["beta"] for row in SMALL.with_options({"beta": 0.4}).rows] == [0.4, 0.4]
    other = SMALL.with_options({"beta": 0.9})
    assert [dict(row) for row in other.rows] == [
        {"method": "camp", "beta": 0.9},
        {"method": "gcd", "beta": 0.9},
    ]
    assert [row["beta"] for row in SMALL.with_options({"beta": (0.2, 0.4)}).rows] == [0.2, 0.4, 0.2, 0.4]
    with pytest.raises(CampError, match=r"small has the values 0\.2, 0\.4 of beta; choose among"):
        SMALL.with_options({"beta": (0.2, 0.9)})
    assert SMALL.with_options({"epochs": 5}).base == {"epochs": 5}
    assert [row["method"] for row in SMALL.with_options({"method": "gcd"}).rows] == ["gcd", "gcd"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epoch": 5}, 'has an option "epoch"; did you mean epochs?'),
        ({"zzz": 5}, 'has an option "zzz".'),
    ],
)
def test_an_option_that_no_method_has_is_a_mistake(options, sentence):
    with pytest.raises(CampError, match=sentence.replace("?", r"\?")):
        SMALL.with_options(options)


def test_an_address_is_what_a_run_is_and_not_where():
    def at(**options):
        return address(from_flat("camp", {"dataset": "cub200", **options}))

    assert at() == at(data="/elsewhere", bank="/bank", device="cpu", engine="torch")
    assert len({at(), at(seed=1), at(alpha=0.3), at(epochs=3), at(dataset="cifar100")}) == 5
    own = {address(from_flat("camp", {"dataset": "folder", "data": path})) for path in ("a", "b")}
    assert len(own) == 2
    assert at().startswith("camp-")


@pytest.mark.parametrize("name", STUDIES)
def test_named_studies_are_whole(name):
    study = STUDIES[name]
    assert study.draw in DRAWINGS
    assert study.claim
    points = study.points()  # every option of every row is one of its method
    assert len({point.address for point in points}) == len(points)
    tiny = smoke(study)
    assert len(tiny.seeds) == 1
    assert all(point.settings.data.dataset == "digits" for point in tiny.points())
    assert {row["method"] for row in tiny.rows} == {row["method"] for row in study.rows}


def test_words_of_the_command_line_become_options():
    words = ["--epochs", "3", "--alpha=0.5", "--no-supervised", "--dataset", "cub200", "--self-supervised"]
    assert run_options_given(SMALL, words) == {
        "epochs": 3,
        "alpha": 0.5,
        "supervised": False,
        "dataset": "cub200",
        "self_supervised": True,
    }
    assert run_options_given(SMALL, ["--beta", "0.2,0.4", "--data", "a,b"]) == {
        "beta": (0.2, 0.4),
        "data": "a,b",
    }
    assert run_options_given(SMALL, ["--data", "2023", "--engine", "torch"]) == {
        "data": "2023",
        "engine": "torch",
    }
    assert run_options_given(SMALL, ["--supervised", "False", "--max-novel", "None"]) == {
        "supervised": False,
        "max_novel": None,
    }
    with pytest.raises(CampError, match="epochs takes a whole number, not 'three'"):
        run_options_given(SMALL, ["--epochs", "three"])
    with pytest.raises(CampError, match="belongs to no option"):
        run_options_given(SMALL, ["3"])
    with pytest.raises(CampError, match="--seeds 0,1,2"):
        run_options_given(SMALL, ["--seed", "3"])


WRITTEN = """
title = "Wider"
draw = "lines"
seeds = [0, 5]

[base]
dataset = "digits"

[axes]
projector_width = [8, 16]

[[runs]]
method = "gcd"

[look]
x = "projector_width"
"""


def test_a_study_of_ones_own(tmp_path: Path):
    file = tmp_path / "wider.toml"
    file.write_text(WRITTEN)
    study = read_toml_study(file)
    assert (study.name, study.title, study.draw, study.seeds) == ("wider", "Wider", "lines", (0, 5))
    assert [dict(row) for row in study.rows] == [
        {"method": "camp", "projector_width": 8},
        {"method": "camp", "projector_width": 16},
        {"method": "gcd"},
    ]
    assert study.look == {"x": "projector_width"}
    file.write_text(
        '[base]\nmethod = "gcd"\nepochs = 3\n[axes]\nbeta = [0.1, 0.2]\n[[runs]]\nmethod = "frozen"'
    )
    study = read_toml_study(file)
    assert [row["method"] for row in study.rows] == ["gcd", "gcd", "frozen"]  # base has the default method
    assert dict(study.base) == {"epochs": 3}
    file.write_text("")
    assert [dict(row) for row in read_toml_study(file).rows] == [{"method": "camp"}]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x =", "is not TOML"),
        ("colour = 1", "colour: Extra inputs are not permitted; a study has the entries title"),
        ("title = 3", "title: Input should be a valid string"),
        ("[axes]\nalpha = 0.5", "axes.alpha: Input should be a valid list"),
        ("[axes]\nalpha = []", "the axis alpha has no values"),
        ("seeds = ['a']", "seeds.0: Input should be a valid integer"),
        ("seeds = [true]", "seeds.0: Input should be a valid integer"),
        ("[axes]\nseed = [1, 2]", r"has seed among its options; .* write seeds = \[0, 1, 2\]"),
        ("[base]\nseed = 1", "has seed among its options"),
        ("[[runs]]\nseed = 1", "has seed among its options"),
        ("[base]\nepoch = 3", r'has an option "epoch"; did you mean epochs\?'),
        ('[base]\nmethod = "nope"', 'There is no method "nope"'),
        ("seeds = []", "needs seeds"),
        ("seeds = [1, 1]", "needs seeds, each once"),
        ('draw = "pie"', 'no drawing "pie"'),
        ("runs = [1]", "runs.0: Input should be a valid dictionary"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(tmp_path: Path, text, sentence):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(CampError, match=sentence):
        read_toml_study(file)


@pytest.mark.parametrize("name", ["runs", "logs", "tips"])
def test_a_study_does_not_write_among_runs(tmp_path: Path, name):
    (tmp_path / f"{name}.toml").write_text(WRITTEN)
    with pytest.raises(CampError, match=f"A study cannot be called {name}"):
        read_toml_study(tmp_path / f"{name}.toml")


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(CampError, match="cannot be read"):
        read_toml_study(tmp_path / "none.toml")
