"""Tasks: what translation, language modelling and parsing decide each for itself. The training loop knows none of them.

registry.py             the tasks by name
base.py                 what a task is asked: its corpus, examples, model and loss, and what it is measured by
file_task.py            a task with one file per set, measured by figures only
translation.py          sentence pairs and the encoder-decoder
translation_scores.py   how it is measured: BLEU, chrF, teacher-forced figures
inflation.py            the warning about scores of text that is tokenised, read from the scores
decoding_choice.py      beam and length penalty chosen on the validation set
language_modelling.py   blocks of a text and a decoder alone
parsing.py              dependency trees and the encoder with a biaffine head
corpus.py               from a corpus to what a training reads: split texts, tokenizers, token ids
prepared.py             a prepared corpus, as training and evaluation read it
corpus_files.py         a corpus's files, languages and sizes, and what is wrong with them
more_corpora.py         further corpora and synthetic pairs, trained on beside it
corpus_of_run.py        the corpus of a run, as it was then
cache.py                what takes room and can be made again
back_translation.py     synthetic pairs from text of the target language
"""
