"""Model directories: write, read, check and find trained models.

directory.py    the model directory: config.json, weights, tokenizers, card; the only code that reads or writes it
card.py         parts of every model card: its header, and how to load the model
hub.py          models on a hub, hf://owner/name, downloaded to a folder
description.py  the file that describes an exported folder
api.py          `repose.presets` and `repose.build`
"""
