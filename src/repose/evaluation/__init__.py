"""What translations are worth: scores, and whether two systems differ. Nothing here needs a model.

metrics.py              BLEU and chrF of a corpus by sacreBLEU, each with its signature
sentence_statistics.py  the counts that they are made of, sentence by sentence, and the file that keeps them
ratio.py                likewise for a figure that is a ratio of two sums, as of words attached rightly over words
significance.py         tests of differences: resamples of sentences, exchanged translations, other seeds
by_length.py            BLEU by the length of the source
looping.py              translations that say the same words again and again
"""
