from repose.tasks.choice import Choice, Trial

GREEDY = Trial(1, 0.0, 20.0)


def test_a_beam_is_taken_where_it_is_better_than_greedy_search() -> None:
    choice = Choice((GREEDY, Trial(4, 0.6, 19.0), Trial(4, 1.0, 21.0), Trial(4, 1.5, 21.0)))
    assert choice.settings == {"beam_size": 4, "length_penalty": 1.0}


def test_greedy_search_is_taken_where_no_beam_is_better() -> None:
    choice = Choice((GREEDY, Trial(4, 0.6, 19.0), Trial(4, 1.0, 20.0)))
    assert choice.settings == {"beam_size": 1, "length_penalty": 1.0}


def test_without_a_beam_there_is_nothing_to_choose() -> None:
    assert Choice((GREEDY,)).settings == {"beam_size": 1, "length_penalty": 0.0}
