"""Matching of categories with true classes, at discovery time or by the test predictions.

All matchings are one-to-one (Hungarian). A category left over gets NO_CLASS and is never correct.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from camp.bench.evaluation.class_groups import NO_CLASS, Classes, Vectors


def match_discovered(centroids: Vectors, means: Vectors, classes: Classes) -> Classes:
    """Match by distance in feature space, once, at discovery time (protocol of the reference code).

    `centroids` (m, D) are the categories discovered in a task; `means` (c, D) the true means of the train
    features of its novel classes, which are `classes` (c,). The matching has the least sum of Euclidean
    distances. Where m > c (the number of categories was estimated) the surplus gets NO_CLASS.

    >>> means = np.array([[0.0, 0.0], [10.0, 0.0]])
    >>> match_discovered(np.array([[9.0, 0.0], [1.0, 0.0], [5.0, 40.0]]), means, np.array([16, 17]))
    array([17, 16, -1])
    """
    matched = np.full(len(centroids), NO_CLASS, dtype=np.int64)
    if len(centroids) and len(means):
        rows, columns = linear_sum_assignment(cdist(centroids, means))
        matched[rows] = classes[columns]
    return matched


def match_on_test(predicted: Classes, true: Classes, class_of_category: Classes) -> Classes:
    """Match discovered categories so that most test predictions are correct (protocol "test_hungarian").

    `predicted` (n,) are categories 0..m-1 of the test images of all tasks so far, `true` (n,) their classes;
    `class_of_category` (m,) is NO_CLASS for discovered ones. Returns the classes (m,): known categories keep
    theirs, and no other category may take it. A discovered category that is predicted for no image of a free
    class keeps NO_CLASS.

    >>> match_on_test(np.array([0, 1, 1, 2, 2]), np.array([0, 8, 8, 8, 9]), np.array([0, -1, -1]))
    array([0, 8, 9])
    """
    matched = np.array(class_of_category, dtype=np.int64)
    discovered = np.flatnonzero(matched == NO_CLASS)
    free = np.setdiff1d(true, matched)
    row_of = np.full(len(matched), -1)
    row_of[discovered] = np.arange(len(discovered))

    rows = row_of[predicted]
    counted = (rows >= 0) & np.isin(true, free)
    agree = np.zeros((len(discovered), len(free)), dtype=np.int64)
    np.add.at(agree, (rows[counted], np.searchsorted(free, true[counted])), 1)

    rows, columns = linear_sum_assignment(agree, maximize=True)
    worth = agree[rows, columns] > 0
    matched[discovered[rows[worth]]] = free[columns[worth]]
    return matched


def match_task(predicted: Classes, true: Classes, n_categories: int) -> Classes:
    """Match all categories on the test set of one task alone (protocol "task_hungarian", SimGCD's).

    `predicted` (n,) are categories 0..m-1 of the test images of one task, `true` (n,) their classes. Every
    category, known ones too, may take any class of that test set, whatever it stands for in other tasks; so
    known classes must only be separated, not recognised. Returns the classes (m,).

    >>> match_task(np.array([2, 2, 1, 0]), np.array([0, 0, 1, 1]), 3)
    array([ 1, -1,  0])
    """
    return match_on_test(predicted, true, np.full(n_categories, NO_CLASS))
