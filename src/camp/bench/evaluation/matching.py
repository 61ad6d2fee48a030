"""Which true class a category stands for: decided at discovery time, or by the test predictions.

All matchings are one-to-one (Hungarian). A category left over gets NO_CLASS and is never right.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

NO_CLASS = -1


def match_discovered(centroids: np.ndarray, means: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The reference's protocol: once, at discovery time, by distance in feature space.

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
        matched[rows] = np.asarray(classes)[columns]
    return matched


def match_on_test(predicted: np.ndarray, true: np.ndarray, class_of_category: np.ndarray) -> np.ndarray:
    """The protocol "test-hungarian": discovered categories take the classes that make most predictions right.

    `predicted` (n,) are category numbers 0..m-1 of the test pictures of all tasks so far, `true` (n,) their
    classes, and `class_of_category` (m,) holds the class of each known category and NO_CLASS for each
    discovered one. Known categories keep their class and nobody else may take it. Returns all classes (m,);
    a discovered category that is predicted for no picture of a free class keeps NO_CLASS.

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


def match_task(predicted: np.ndarray, true: np.ndarray, n_categories: int) -> np.ndarray:
    """The protocol "task-hungarian", SimGCD's own: one task's test set is matched by itself.

    `predicted` (n,) are category numbers 0..m-1 of the test pictures of one task, `true` (n,) their classes. Every
    category, known ones too, may take any class of that test set, whatever it stands for in other tasks; so known
    classes need not be recognised, only kept apart. Returns the classes (m,).

    >>> match_task(np.array([2, 2, 1, 0]), np.array([0, 0, 1, 1]), 3)
    array([ 1, -1,  0])
    """
    return match_on_test(predicted, true, np.full(n_categories, NO_CLASS))
