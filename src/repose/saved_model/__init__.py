"""A trained model as a folder: written, read, checked, and found where a user's path means it.

directory.py    the model directory: config.json, weights, tokenizers, card; all that reads or writes one is here
card.py         what the card of every model says: its header, and how it is loaded
hub.py          models on a hub, hf://owner/name, fetched into a folder
description.py  the file by which a folder that was exported from a model says what it is
api.py          what `import repose` offers of architectures: `presets` and `build`
"""
