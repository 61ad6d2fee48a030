import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camp.app.inputs.folders import FolderImages, read_folder
from camp.app.inputs.listed import merge_copies
from camp.core.csv_output import csv_text
from camp.core.errors import CampError
from camp.data.images import UnreadableImageError


def folder_of(root: Path, *keys: str) -> Path:
    """`root` with a file for each key; only names matter here."""
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(b"picture")
    return root


def labels_of(images: FolderImages) -> dict[str, str | None]:
    return dict(zip(images.keys, images.labels, strict=True))


@pytest.fixture
def january(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "january", "heron/1.jpg", "heron/2.jpg", "unlabelled/3.jpg", "4.jpg")


def with_csv(january: Path, content: str | bytes) -> FolderImages:
    path = january.parent / "labels.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_folder(january, path)


def test_the_first_folder_is_the_label(tmp_path: Path) -> None:
    root = folder_of(
        tmp_path,
        "heron/a.jpg",
        "heron/egret/deep/b.PNG",
        "heron/unlabelled/c.jpg",
        " egret /d.jpg",
        "loose.jpg",
        "unlabelled/e.jpg",
        "Unlabeled/heron/f.jpg",
        "heron/notes.txt",
    )
    images = read_folder(root)
    assert images.root == root
    assert list(images.keys) == sorted(images.keys)
    assert labels_of(images) == {
        "heron/a.jpg": "heron",
        "heron/egret/deep/b.PNG": "heron",
        "heron/unlabelled/c.jpg": "heron",
        " egret /d.jpg": "egret",
        "loose.jpg": None,
        "unlabelled/e.jpg": None,
        "Unlabeled/heron/f.jpg": None,
    }


CSV_LABELS = {"4.jpg": "egret", "heron/1.jpg": "heron", "heron/2.jpg": "heron", "unlabelled/3.jpg": "a/b"}


@pytest.mark.parametrize(
    "text",
    [
        "file,label\nunlabelled/3.jpg,a/b\n4.jpg, egret \nheron/1.jpg,heron\n",
        "\ufefffile,label\r\nunlabelled\\3.jpg,a/b\r\n.\\4.jpg,egret\r\n",
        "seen;Label;File\n2024;a/b;unlabelled/3.jpg\n2023;egret;./4.jpg\n",
        "file\tlabel\rheron/1.jpg\t\r4.jpg\tegret\runlabelled/3.jpg\ta/b\r",
        '"label","file"\n"a/b","unlabelled/3.jpg"\n\n"egret","4.jpg"\n,heron/2.jpg\n,\n',
        "file,label\nheron/2.jpg\n4.jpg,egret,,\n4.jpg,egret\n4.jpg,\nunlabelled/3.jpg,a/b",
    ],
)
def test_a_csv_labels_what_has_no_label(january: Path, text: str) -> None:
    assert labels_of(with_csv(january, text)) == CSV_LABELS


def test_cells_that_were_escaped_for_spreadsheets_are_read_as_they_were(tmp_path: Path) -> None:
    names = {"=1+1.jpg": "-heron", "'@robin.jpg": "'=robin", "it's.jpg": "it's", "-3.jpg": "-3"}
    root = folder_of(tmp_path / "formulas", *names)
    table = csv_text([("file", "label"), *names.items()])
    assert "'=1+1.jpg,'-heron\n" in table
    assert labels_of(with_csv(root, table)) == names
    by_hand = "file,label\n" + "".join(f"{file},{label}\n" for file, label in list(names.items())[:1])
    assert labels_of(with_csv(root, by_hand))["=1+1.jpg"] == "-heron"


def test_accents_may_be_composed_in_the_csv_and_not_in_the_folder(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "january", "he\u0301ron/1.jpg")
    assert labels_of(with_csv(root, "file,label\nh\u00e9ron/1.jpg,h\u00e9ron\n")) == {
        "he\u0301ron/1.jpg": "h\u00e9ron"
    }


def test_the_exact_name_of_a_file_goes_before_one_that_looks_the_same(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "january", "he\u0301.jpg", "h\u00e9.jpg")
    if len(list(root.iterdir())) == 1:
        pytest.skip("this file system takes both names for one")
    text = "file,label\nhe\u0301.jpg,apart\nh\u00e9.jpg,composed\n"
    assert labels_of(with_csv(root, text)) == {"he\u0301.jpg": "apart", "h\u00e9.jpg": "composed"}


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing", "There is no folder"), ("4.jpg", "is not a folder"), ("bare", "holds no pictures")],
)
def test_a_folder_that_is_none_is_refused(january: Path, name: str, words: str) -> None:
    (january / "bare").mkdir()
    (january / "bare" / "notes.txt").write_text("nothing")
    with pytest.raises(CampError, match=words):
        read_folder(january / name)


def test_a_folder_that_cannot_be_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CampError, match=r"Could not read the folder|There is no folder"):
        read_folder(tmp_path / ("x" * 300))


@pytest.mark.parametrize("name", ["unknown", "Category 3", "h\x07ron"])
def test_a_folder_with_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CampError, match=r"Rename the folder .* cannot be the name of a category"):
        read_folder(folder_of(tmp_path, f"{name}/1.jpg"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("\ufeff \n\n", "is empty"),
        ("file,label\n", "has a header but no rows"),
        ("file,label\n,\n", "has a header but no rows"),
        ("file,label\n4.jpg,egret\n".encode("utf-16"), "not text in UTF-8"),
        ("file,label\n4.jpg,égret\n".encode("latin-1"), "not text in UTF-8"),
        ("file,label\n4.jpg,egret\n".encode("utf-16-le"), "is binary or not in UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not text in UTF-8"),
        (
            "4.jpg,egret\n",
            "needs one column called file and one called label; its first line is '4.jpg,egret'",
        ),
        ("file\n4.jpg\n", "needs one column called file"),
        ("file,label,label\n4.jpg,egret,heron\n", "needs one column called file and one called label"),
        ('file,label\n4.jpg,"egret\n', "is not valid CSV"),
        ("file,label\n4.jpg,egret, little\n", "Line 2 of labels.csv has more fields than the header"),
        ("file,label\n/4.jpg,egret\n", "Line 2 of labels.csv names '/4.jpg', which leads out of the folder"),
        ("file,label\nC:\\4.jpg,egret\n", "leads out of the folder"),
        ("file,label\nheron/../4.jpg,egret\n", "leads out of the folder"),
        ("file,label\nheron\\..\\4.jpg,egret\n", "leads out of the folder"),
        (
            "file,label\n4.jpg,egret\njanuary/4.jpg,egret\n",
            r"1 row whose .* 'january/4.jpg' \(line 3\); give files",
        ),
        ("file,label\n,egret\n", "1 row whose file is not among the pictures"),
        ("file,label\n4.jpg,unknown\n", "Change line 2 of labels.csv, .* choose a word other than"),
        ("file,label\n4.jpg,category 7\n", "categories without a name are called like this"),
        ('file,label\n4.jpg,"e\ngret"\n', "without control characters"),
        (f"file,label\n4.jpg,{'e' * 101}\n", "at most 100 characters"),
    ],
)
def test_a_bad_csv_is_refused_with_a_sentence(january: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(CampError, match=words) as caught:
        with_csv(january, content)
    assert "\n" not in str(caught.value)


def test_a_missing_csv_and_a_folder_in_its_place_are_refused(january: Path) -> None:
    with pytest.raises(CampError, match="There is no file"):
        read_folder(january, january / "labels.csv")
    with pytest.raises(CampError, match="Could not read"):
        read_folder(january, january / "heron")


def test_files_that_are_not_there_are_counted_and_five_are_named(january: Path) -> None:
    rows = "".join(f"gone{number}.jpg,heron\n" for number in range(7))
    with pytest.raises(CampError, match=r"has 7 rows .*gone4\.jpg' \(line 7\), \.\.\.;") as caught:
        with_csv(january, "file,label\n4.jpg,heron\n" + rows)
    assert "gone5" not in str(caught.value)


def test_every_contradiction_is_listed_and_nothing_else(january: Path) -> None:
    text = "file,label\nheron/1.jpg,heron\nheron/2.jpg,egret\n4.jpg,egret\n4.jpg,stork\n4.jpg,egret\n"
    with pytest.raises(CampError) as caught:
        with_csv(january, text)
    head, *lines = str(caught.value).splitlines()
    assert head.startswith("2 pictures have labels that contradict each other, so nothing was learned")
    assert lines == [
        f"{january}/4.jpg: labels.csv says egret (line 4) and stork (line 5)",
        f"{january}/heron/2.jpg: the folder says heron, labels.csv says egret",
    ]


@pytest.mark.parametrize(("count", "last"), [(20, "heron/19.jpg: the folder says"), (23, "and 3 more")])
def test_no_more_than_twenty_contradictions_are_listed(tmp_path: Path, count: int, last: str) -> None:
    keys = [f"heron/{number:02}.jpg" for number in range(count)]
    root = folder_of(tmp_path / "january", *keys)
    with pytest.raises(CampError) as caught:
        with_csv(root, "file,label\n" + "".join(f"{key},egret\n" for key in keys))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{count} pictures have")
    assert len(lines) == 1 + 20 + (count > 20)
    assert last in lines[-1]


SETTLED = FolderImages(
    Path("january"),
    ("a.jpg", "b.jpg", "egret/c.jpg", "heron/d.jpg", "heron/e.jpg", "z.jpg"),
    (None, None, "egret", "heron", "heron", None),
)


def test_pictures_that_differ_stay_and_need_no_remark() -> None:
    assert merge_copies(SETTLED, {key: key.encode() for key in SETTLED.keys}) == (SETTLED, [])


def test_equal_pictures_count_once_and_the_label_counts() -> None:
    digests = {
        "a.jpg": b"1",
        "b.jpg": b"2",
        "heron/d.jpg": b"1",
        "heron/e.jpg": b"1",
        "z.jpg": b"2",
        "gone": b"2",
    }
    once, remarks = merge_copies(SETTLED, digests)
    assert once == FolderImages(Path("january"), ("b.jpg", "heron/d.jpg"), (None, "heron"))
    assert remarks == [
        "2 pictures are there more than once and count once.",
        "1 picture is there both with and without a label: the label counts.",
    ]


def test_one_picture_twice_without_a_label_is_one_remark() -> None:
    once, remarks = merge_copies(SETTLED, {"a.jpg": b"1", "z.jpg": b"1"})
    assert once.keys == ("a.jpg",)
    assert remarks == ["1 picture is there more than once and counts once."]


def test_unreadable_pictures_drop_out_even_all_of_them() -> None:
    assert merge_copies(SETTLED, {"egret/c.jpg": b"1"})[0].keys == ("egret/c.jpg",)
    assert merge_copies(SETTLED, {}) == (FolderImages(Path("january"), (), ()), [])


def test_one_picture_under_two_labels_is_a_contradiction() -> None:
    digests = {"a.jpg": b"1", "egret/c.jpg": b"1", "heron/d.jpg": b"1", "heron/e.jpg": b"1"}
    with pytest.raises(CampError) as caught:
        merge_copies(SETTLED, digests)
    head, *lines = str(caught.value).splitlines()
    assert head.startswith("1 picture has labels that contradict each other, so nothing was learned")
    assert lines == [
        "january/egret/c.jpg: the label says egret, the same picture january/heron/d.jpg says heron"
    ]


FOLDERS = st.sampled_from(["", "heron/", "egret/", "egret/heron/", "unlabelled/", "UNLABELED/deep/"])
KEYS = st.builds("{}{}.jpg".format, FOLDERS, st.integers(0, 9))
LABELS = st.sampled_from(["", "heron", "egret", "stork"])


@settings(max_examples=60, deadline=None)
@given(st.lists(KEYS, min_size=1, unique=True), st.data())
def test_folder_and_csv_together_are_either_in_agreement_or_refused(
    keys: list[str], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.tuples(st.sampled_from(keys), LABELS), min_size=1))
    said: dict[str, set[str]] = {key: {label for file, label in rows if file == key} - {""} for key in keys}
    for key in keys:
        if key.startswith(("heron/", "egret/")):
            said[key].add(key[:5])
    with tempfile.TemporaryDirectory() as name:
        root = folder_of(Path(name) / "january", *keys)
        text = "file,label\n" + "".join(f"{file},{label}\n" for file, label in rows)
        wrong = [key for key in keys if len(said[key]) > 1]
        if wrong:
            with pytest.raises(CampError) as caught:
                with_csv(root, text)
            lines = str(caught.value).splitlines()[1:]
            listed = [line.split(":")[0].removeprefix(f"{root}/") for line in lines[:20]]
            assert listed == sorted(wrong)[:20]
            return
        images = with_csv(root, text)
        assert labels_of(images) == {key: next(iter(said[key]), None) for key in keys}


@settings(max_examples=30, deadline=None)
@given(st.lists(KEYS, min_size=1, unique=True), st.data())
def test_the_order_of_the_file_system_does_not_matter(keys: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(keys))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first = read_folder(folder_of(Path(one), *keys))
        second = read_folder(folder_of(Path(other), *shuffled))
    assert (first.keys, first.labels) == (second.keys, second.labels)
    assert list(first.keys) == sorted(keys)


def test_labels_that_look_the_same_are_one_label(tmp_path: Path) -> None:
    for name in ("heron", "heron\u200b", "unlabelled\u200b"):
        picture = tmp_path / "batch" / name / "1.png"
        picture.parent.mkdir(parents=True)
        picture.touch()
    (tmp_path / "t.csv").write_text(
        "file,label\nunlabelled\u200b/1.png,\u2068heron\u2069\n", encoding="utf-8"
    )
    assert set(read_folder(tmp_path / "batch").labels) == {"heron", None}
    assert set(read_folder(tmp_path / "batch", tmp_path / "t.csv").labels) == {"heron"}


def test_links_to_themselves_and_pipes_are_listed(tmp_path: Path) -> None:
    (tmp_path / "heron").mkdir()
    (tmp_path / "heron" / "loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "heron" / "loop").symlink_to("loop")
    (tmp_path / "heron" / "gone.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(tmp_path / "heron" / "pipe.jpg")
    images = read_folder(tmp_path)
    assert images.keys == ("heron/gone.jpg", "heron/loop.jpg", "heron/pipe.jpg")
    for key in images.keys:
        with pytest.raises(UnreadableImageError):
            images.reader.read(key)
