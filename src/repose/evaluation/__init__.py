"""Scores of translations, and tests of whether two systems differ. Nothing here needs a model.

metrics.py              BLEU and chrF of a corpus by sacreBLEU, each with its signature
sentence_statistics.py  the counts behind these scores, sentence by sentence, and the file that stores them
ratio.py                the same for a figure that is a ratio of two sums, such as correctly attached words over words
significance.py         significance tests: resampled sentences, exchanged translations, other seeds
by_length.py            BLEU by the length of the source
looping.py              translations that repeat the same words again and again
"""
