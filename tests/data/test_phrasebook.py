"""The embedded corpus that ships with the package. (tests/tools checks that the grammar still writes it.)"""

import hashlib

from repose.data.phrasebook import SIZES, read


def test_sizes_and_content() -> None:
    splits = read()
    assert {split: len(pairs) for split, pairs in splits.items()} == SIZES
    assert SIZES == {"train": 20_000, "valid": 500, "test": 500}
    text = "".join(f"{pt}\t{en}\n" for pairs in splits.values() for pt, en in pairs)
    assert hashlib.sha256(text.encode()).hexdigest().startswith("37e2e9914850b873"), "other pairs are other run ids"
    assert splits["train"][0][0] == "O engenheiro encontrou o guarda-chuva verde depois da mãe dele."


def test_no_two_pairs_share_a_sentence() -> None:
    everything = [pair for pairs in read().values() for pair in pairs]
    for side in (0, 1):
        assert len({pair[side] for pair in everything}) == len(everything)
