"""Experiments as settings: what they are, where they are read from, and what names a run. Nothing here needs torch.

experiment.py  the settings: corpus, tokenizer, architecture, training, decoding, with their defaults
file.py        an experiment out of files, presets and the command line, and back into TOML and JSON
run_id.py      the digest of what can move a training's numbers

The experiments that ship with the package are in the folder `experiments` beside the rooms.
"""
