"""Which of the paper's tables a run stands beside."""

from pathlib import Path

from synthetic_runs import make_incremental_run, make_run

from camp.bench.report.published import published_table
from camp.bench.results import load_run


def test_the_labels_decide_which_table(tmp_path: Path) -> None:
    small = {"tasks": 2, "images": 0, "epochs": 0, "dataset": "cifar100"}
    discovery = load_run(make_run(tmp_path / "gccd", **small))
    incremental = load_run(make_incremental_run(tmp_path / "cil", tasks=2, dataset="cifar100"))
    semi = load_run(make_run(tmp_path / "semi-cl", novel=0, **small))  # no novel class, but unlabelled images
    assert [run.results.all_labelled for run in (discovery, incremental, semi)] == [False, True, False]
    first, second = published_table([discovery], "md"), published_table([incremental], "md")
    assert first.startswith("| method | exemplars | all | paper |")
    assert second.startswith("| method | seeds | cifar100 2 tasks | paper | last |")
    assert published_table([incremental, discovery], "md") == f"{first}\n{second}"
    assert published_table([semi], "md").startswith("| method | exemplars |")
