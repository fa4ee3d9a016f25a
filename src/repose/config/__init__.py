"""Experiments as settings: what can be set, where settings are read from, and how a run is named. Nothing needs torch.

experiment.py  the settings: corpus, tokenizer, architecture, training, decoding, with their defaults
file.py        an experiment from files, presets and the command line, and back to TOML and JSON
run_id.py      the digest of everything that can change the numbers of a training

The experiments that ship with the package are in the folder `experiments` beside the rooms.
"""
