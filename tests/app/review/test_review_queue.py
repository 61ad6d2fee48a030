"""The queue of the review page: what is asked, what answers do, and what undo restores."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from small_knowledge import state
from small_workspace import NAMES

from camp.app.review.questions import GROUP, MAX_CHECKED, MIN_GROUP, WORTH_ASKING, look_alikes
from camp.app.review.state import ReviewState
from camp.app.review.suggestions import SHRINKAGE, leave_one_out_distances, suggest
from camp.app.workspace.decisions import Confirmed, Moved, Named, Propagated
from camp.app.workspace.history import standing
from camp.app.workspace.knowledge import CLUSTERED, REVIEWED
from camp.app.workspace.log import end_file, read_log
from camp.app.workspace.report import BatchReport
from camp.app.workspace.step_files import Step, load_step, save_step
from camp.app.workspace.workspace import Workspace


def queue(page: TestClient, skip: int = 0) -> dict:
    answer = page.get("/api/queue", params={"skip": skip})
    assert answer.status_code == 200, answer.text
    return answer.json()


def questions(page: TestClient) -> list[dict]:
    found = []
    while (question := queue(page, len(found))["question"]) is not None:
        found.append(question)
    return found


def send(page: TestClient, path: str, status: int = 200, **body: object) -> dict:
    events = page.get("/api/events").json()["events"]
    answer = page.post(f"/api/{path}", json={"events": events, **body})
    assert answer.status_code == status, answer.text
    return answer.json()


def decide(page: TestClient, kind: str, status: int = 200, **fields: object) -> dict:
    return send(page, "decide", status, decision={"kind": kind, **fields})


def clustered(workspace: Workspace, id: int) -> list[int]:
    known = workspace.knowledge()
    rows = known.rows_of(id)
    return rows[known.images.source[rows] == CLUSTERED].tolist()


def test_questions_come_by_expected_corrections_per_decision(page: TestClient) -> None:
    asked = questions(page)
    rates = [question["gain"] / question["cost"] for question in asked]
    assert {question["kind"] for question in asked} >= {"name", "same", "check"}
    assert all(
        one >= next_one - 0.02 for one, next_one in itertools.pairwise(rates)
    )  # both numbers are rounded
    first = queue(page)
    assert first["question"] == asked[0]
    assert first["left"] == sum(rate >= WORTH_ASKING for rate in rates)
    assert first["decisions"] == 0
    assert 0 < first["settled"] < 1


def test_naming_a_group_is_one_event_and_the_group_is_not_asked_about_again(
    page: TestClient, workspace: Workspace
) -> None:
    before = state(workspace.knowledge())
    asked = next(one for one in questions(page) if one["kind"] == "name")
    rows = [picture["row"] for picture in asked["pictures"]]
    body = {"rows": rows, "category": asked["category"], "main": asked["main"]}
    outcome = send(page, "name-group", name="a new kind", **body)
    assert "called “a new kind”" in outcome["said"]
    known = workspace.knowledge()
    assert set(known.images.category[rows]) == {known.named()["a new kind"]}
    assert set(known.images.source[rows]) == {CLUSTERED}  # nobody looked at each of them
    assert len(standing(workspace.events())) == 1
    assert all(
        [picture["row"] for picture in one["pictures"]] != rows
        for one in questions(page)
        if one["kind"] == "name"
    )
    send(page, "undo")
    assert state(workspace.knowledge()) == before


def test_a_category_that_was_named_as_a_whole_is_asked_about_later(page: TestClient) -> None:
    asked = next(
        one
        for one in questions(page)
        if one["kind"] == "name" and len({picture["category"] for picture in one["pictures"]}) == 1
    )
    decide(page, "named", category=asked["category"], name="a kind")
    rows = [picture["row"] for picture in asked["pictures"]]
    again = [one for one in questions(page) if [picture["row"] for picture in one["pictures"]] == rows]
    assert all(one["gain"] < asked["gain"] / 2 for one in again)


def test_a_group_with_the_name_of_a_category_goes_there(page: TestClient, workspace: Workspace) -> None:
    send(page, "name-group", name=NAMES[1], rows=[180, 181], category=9, main=True)
    assert set(workspace.knowledge().images.category[[180, 181]]) == {2}
    assert workspace.knowledge().categories[9].name is None
    made = send(page, "name-group", name="other", rows=[182], category=9, main=False)["category"]
    assert made == 11
    send(page, "undo")
    assert send(page, "name-group", name="other", rows=[182], category=9, main=False)["category"] == 12


def test_a_group_is_confirmed_with_exceptions(page: TestClient, workspace: Workspace) -> None:
    before = state(workspace.knowledge())
    first, second, third, *rest = clustered(workspace, 1)
    parts = {"moved": [{"rows": [first], "into": 2}], "others": [{"rows": [second], "into": 3}]}
    outcome = decide(page, "confirmed", category=1, rows=[third, *rest], **parts)
    assert outcome["said"].endswith("nought, 2 are not.")
    images = workspace.knowledge().images
    assert images.category[[first, second, third]].tolist() == [2, 3, 1]
    assert images.source[[first, second, third]].tolist() == [REVIEWED, CLUSTERED, REVIEWED]
    assert workspace.knowledge().rejected == {(first, 1), (second, 1)}
    for question in questions(page):
        for picture in question["pictures"]:
            assert picture["row"] not in (first, third)  # what a person said is not asked about
            assert picture["row"] != second or 1 not in [
                picture["proposed"],
                *picture["choices"],
            ]
    send(page, "undo")
    assert state(workspace.knowledge()) == before
    assert workspace.knowledge().rejected == frozenset()


def test_several_groups_are_checked_in_one_decision(page: TestClient, workspace: Workspace) -> None:
    before = state(workspace.knowledge())
    (a, b, *_), (c, d, *_) = clustered(workspace, 1), clustered(workspace, 2)
    parts = [
        {"category": 1, "rows": [a], "moved": [{"rows": [b], "into": 2}]},
        {"category": 2, "rows": [c], "others": [{"rows": [d], "into": 1}]},
    ]
    outcome = decide(page, "checked", parts=parts)
    assert outcome["said"] == "2 pictures of 2 categories confirmed, 2 are something else."
    images = workspace.knowledge().images
    assert images.category[[a, b, c, d]].tolist() == [1, 2, 2, 1]
    assert images.source[[a, b, c, d]].tolist() == [REVIEWED, REVIEWED, REVIEWED, CLUSTERED]
    assert workspace.knowledge().rejected == {(b, 1), (d, 2)}
    assert not {a, b, c, d} & {
        picture["row"]
        for question in questions(page)
        if question["kind"] == "name"
        for picture in question["pictures"]
    }
    send(page, "undo")
    assert state(workspace.knowledge()) == before


def test_a_check_shows_a_bounded_number_of_pictures_by_category(page: TestClient) -> None:
    checks = [one for one in questions(page) if one["kind"] == "check"]
    assert checks
    for one in checks:
        proposed = [picture["proposed"] for picture in one["pictures"]]
        assert len(proposed) <= MAX_CHECKED
        assert proposed[0] == one["category"]
        assert len([id for id, _ in itertools.groupby(proposed)]) == len(set(proposed))  # side by side
        for picture in one["pictures"]:
            assert picture["proposed"] not in picture["choices"]


def test_similar_pictures_go_along_in_one_decision(page: TestClient, workspace: Workspace) -> None:
    before = state(workspace.knowledge())
    a, b, c = clustered(workspace, 1)[:3]
    decide(
        page,
        "propagated",
        moves=[{"rows": [a], "into": 2}, {"rows": [b], "into": 3}],
        kept=[{"rows": [c], "into": 2}],
    )
    images = workspace.knowledge().images
    assert images.category[[a, b, c]].tolist() == [2, 3, 1]
    assert set(images.source[[a, b, c]]) == {CLUSTERED}
    assert workspace.knowledge().rejected == {(c, 2)}
    send(page, "undo")
    assert state(workspace.knowledge()) == before


def test_several_categories_are_merged_in_one_decision(page: TestClient, workspace: Workspace) -> None:
    before = state(workspace.knowledge())
    size = sum(workspace.knowledge().counts()[id] for id in (8, 9, 10))
    outcome = decide(page, "merged-several", into=8, categories=[10, 9], different=[7])
    assert outcome["said"] == "Categories 9 and 10 are category 8."
    known = workspace.knowledge()
    assert known.counts()[8] == size
    assert known.categories[9].merged_into == known.categories[10].merged_into == 8
    assert (7, 8) in known.distinct
    assert len(standing(workspace.events())) == 1
    send(page, "undo")
    assert state(workspace.knowledge()) == before


def test_what_is_different_is_not_asked_again(page: TestClient) -> None:
    asked = next(one for one in questions(page) if one["kind"] == "same")
    decide(page, "merged-several", into=asked["category"], different=asked["others"])
    pairs = [
        (one["category"], id) for one in questions(page) if one["kind"] == "same" for id in one["others"]
    ]
    assert not {(asked["category"], id) for id in asked["others"]} & set(pairs)


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        ("confirmed", {"category": 1, "rows": []}, "No picture was chosen"),
        ("confirmed", {"category": 1, "rows": [0], "moved": [{"rows": [0], "into": 2}]}, "two places"),
        ("confirmed", {"category": 1, "moved": [{"rows": [0], "into": 1}]}, "cannot go there"),
        ("confirmed", {"category": 99, "rows": [0]}, "no category 99"),
        ("confirmed", {"category": 1, "rows": [4000]}, "not 4000"),
        ("checked", {"parts": []}, "No picture was chosen"),
        ("checked", {"parts": [{"category": 1, "rows": [0]}, {"category": 2, "rows": [0]}]}, "two places"),
        ("propagated", {"moves": []}, "No picture was chosen"),
        ("propagated", {"kept": [{"rows": [4000], "into": 1}]}, "not 4000"),
        ("propagated", {"moves": [{"rows": [0], "into": 2}], "name": "nought"}, "already"),
        ("propagated", {"moves": [{"rows": [0], "into": 1}], "made": True}, "exists already"),
        (
            "propagated",
            {"moves": [{"rows": [0], "into": 11}, {"rows": [1], "into": 12}], "made": True},
            "one category",
        ),
        ("merged-several", {"into": 1}, "No category"),
        ("merged-several", {"into": 1, "categories": [5, 1]}, "itself"),
        ("merged-several", {"into": 1, "categories": [5], "different": [5]}, "another one"),
        ("moved", {"rows": [0], "into": 2, "name": "x"}, "Only a new category"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    page: TestClient, workspace: Workspace, kind: str, fields: dict, sentence: str
) -> None:
    before = state(workspace.knowledge())
    assert sentence in decide(page, kind, 409, **fields)["error"]
    assert len(workspace.events()) == 2
    assert state(workspace.knowledge()) == before


def test_an_answer_to_an_old_question_is_refused(page: TestClient, workspace: Workspace) -> None:
    seen = queue(page)["events"]
    Workspace.open(Path(workspace.name)).decide(Named(category=6, name="five"))
    bodies = [
        ("name-group", {"rows": [1], "name": "x", "category": 9, "main": False}),
        ("decide", {"decision": {"kind": "confirmed", "category": 1, "rows": [0]}}),
        ("decide", {"decision": {"kind": "propagated", "moves": [{"rows": [0], "into": 2}]}}),
        ("decide", {"decision": {"kind": "merged-several", "into": 8, "categories": [9]}}),
    ]
    for path, body in bodies:
        answer = page.post(f"/api/{path}", json={"events": seen, **body})
        assert answer.status_code == 409
        assert "meanwhile" in answer.json()["error"]
    assert len(workspace.events()) == 3


def test_a_kill_in_the_middle_of_writing_leaves_whole_decisions_only(
    page: TestClient, workspace: Workspace
) -> None:
    decide(page, "confirmed", category=1, rows=clustered(workspace, 1)[:2])
    whole = state(workspace.knowledge())
    log = Path(workspace.name) / "events.jsonl"
    counted = end_file(log).read_bytes()
    decide(page, "merged-several", into=8, categories=[9, 10])
    content = log.read_bytes()
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    end_file(log).write_bytes(counted)  # it is written after the line
    for end in range(last, len(content) - 1, 7):
        log.write_bytes(content[:end])
        assert state(Workspace.open(Path(workspace.name)).knowledge()) == whole


def test_new_decisions_are_read_back_as_they_were_written(page: TestClient, workspace: Workspace) -> None:
    a, b = clustered(workspace, 1)[:2]
    decide(page, "confirmed", category=1, rows=[a], others=[{"rows": [b], "into": 2}])
    send(page, "make", rows=[b], name="seven")
    send(page, "name-group", rows=[a], name="eight", category=1, main=False)
    confirmed, moved, named = read_log(Path(workspace.name) / "events.jsonl")[-3:]
    assert isinstance(confirmed, Confirmed)
    assert confirmed.others[0].rows == [b]
    assert isinstance(moved, Moved)
    assert moved.name == "seven"
    assert isinstance(named, Propagated)
    assert (named.made, named.name) == (True, "eight")
    assert workspace.knowledge().rejected == {(b, 1)}


def test_rejections_follow_their_images_into_the_next_step(workspace: Workspace, tmp_path: Path) -> None:
    known = workspace.knowledge().with_rejected([(3, 2), (5, 1)])
    after = known.with_images(np.array([row for row in range(len(known.images)) if row != 3]))
    assert after.rejected == {(4, 1)}
    assert after.images.files[4] == known.images.files[5]
    (tmp_path / "step").mkdir()
    save_step(tmp_path / "step", Step(after, {}, BatchReport(step=2, folder="february")))
    assert load_step(tmp_path / "step").rejected == {(4, 1)}


def test_suggestions_are_those_of_a_classifier_without_the_image(workspace: Workspace) -> None:
    known = workspace.knowledge()
    seen = suggest(known)
    assert np.allclose(seen.probabilities.sum(axis=1), 1, atol=1e-4)
    row = int(known.rows_of(5)[0])
    moved = Moved(rows=[row], into=2).apply(known)
    moved.images.source[row] = CLUSTERED
    wrong = suggest(moved)
    # The category of the image itself has no influence on what the others say of it.
    assert seen.ids[seen.probabilities[row].argmax()] == 5
    assert wrong.ids[wrong.probabilities[row].argmax()] == 5
    assert abs(seen.own[row] - wrong.probabilities[row, 4]) < 0.05


def test_distances_without_the_image_equal_those_of_a_fit_without_it() -> None:
    draw = torch.Generator().manual_seed(0)
    index = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
    x = torch.randn(12, 4, generator=draw) + 2.0 * torch.randn(3, 4, generator=draw)[index]
    found = leave_one_out_distances(x, index, torch.ones(12, dtype=torch.bool), 3)

    def scatter(rows: torch.Tensor) -> torch.Tensor:
        parts = [x[rows & (index == k)] for k in range(3)]
        return sum((part - part.mean(dim=0)).T @ (part - part.mean(dim=0)) for part in parts)

    everything = torch.ones(12, dtype=torch.bool)
    freedom = 12 - 3  # the size of the covariance is that of all images
    for row in range(12):
        rest = everything & (torch.arange(12) != row)
        covariance = (1 - SHRINKAGE) * scatter(rest) + SHRINKAGE * scatter(
            everything
        ).trace() / 4 * torch.eye(4)
        for k in range(3):
            part = x[rest & (index == k)]
            d = x[row] - part.mean(dim=0)
            expected = d @ torch.linalg.inv(covariance / freedom) @ d / (1 + 1 / len(part))
            assert found[row, k] == pytest.approx(float(expected), rel=1e-3)


def test_groups_cover_the_unlabelled_images_of_the_batch_once(workspace: Workspace) -> None:
    known = workspace.knowledge()
    rows = np.concatenate(look_alikes(known))
    images = known.images
    expected = ((images.steps == 2) | (images.category == 5)) & (
        images.source == CLUSTERED
    )  # 5 has no name yet
    assert sorted(rows.tolist()) == np.flatnonzero(expected).tolist()


def test_groups_are_smaller_where_categories_are_small(workspace: Workspace) -> None:
    """A group of the usual size would hold images of several categories."""
    known = workspace.knowledge()
    groups = look_alikes(known)
    rows = np.concatenate(groups)
    n_categories = len(set(known.images.category[rows].tolist()))
    assert len(rows) < GROUP * n_categories
    assert len(groups) >= 2 * n_categories


def test_few_images_of_many_categories_are_not_one_group(workspace: Workspace) -> None:
    known = workspace.knowledge()
    rows = np.concatenate(look_alikes(known))
    few = known.with_images(
        np.concatenate([known.rows_of(id)[:2] for id in np.unique(known.images.category)])
    )
    groups = look_alikes(few)
    assert len(np.concatenate(groups)) < len(rows)
    assert 1 < len(groups) <= len(np.concatenate(groups)) // MIN_GROUP


def test_a_workspace_whose_pictures_were_all_discarded_has_no_question(
    page: TestClient, workspace: Workspace
) -> None:
    for category in workspace.knowledge().live():
        decide(page, "discarded", category=category.id)
    answer = queue(page)
    assert (answer["question"], answer["settled"]) == (None, 1.0)
    assert ReviewState(workspace).now().queue == []


def test_answering_the_queue_names_nearly_all_pictures(page: TestClient, workspace: Workspace) -> None:
    """A person who knows the digits answers a few questions; the queue ends with nearly all names right."""
    truth = [
        NAMES[id - 1] if id <= len(NAMES) else f"digit {min(id, 9)}"
        for id in workspace.knowledge().images.category
    ]
    for _ in range(30):
        asked = queue(page)["question"]
        if asked["kind"] != "name":
            break
        rows = [picture["row"] for picture in asked["pictures"]]
        names = [truth[row] for row in rows]
        most = max(set(names), key=names.count)
        send(page, "name-group", rows=rows, name=most, category=asked["category"], main=asked["main"])
    known = workspace.knowledge()
    right = [known.categories[id].name == name for id, name in zip(known.images.category.tolist(), truth)]
    assert np.mean(right) > 0.85


def test_questions_about_many_images_are_about_a_sample(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camp.app.review.questions.MAX_ASKED", 120)
    monkeypatch.setattr("camp.app.review.questions.SAMPLE", 100)
    monkeypatch.setattr("camp.app.review.state.MAX_ASKED", 120)
    now = ReviewState(workspace).now()
    assert len(now.asked) == 100
    category = now.knowledge.images.category
    assert set(category[now.asked]) == set(category)
    shown = [row for question in now.queue for row in question.rows]
    assert shown
    assert set(shown) <= set(now.asked.tolist())
    for question in now.queue:
        if question.kind == "name":
            assert question.category in category[list(question.rows)]
