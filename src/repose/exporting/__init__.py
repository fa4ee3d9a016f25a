"""Export trained models for other tools: ONNX, CTranslate2, a page for the browser.

targets.py                  `repose export`: finds the target, writes the folder and its description
base.py                     options, and the result of an export
to_onnx.py                  target `onnx`: the graphs of `repose.graphs`, with tokenizers and settings
to_web.py, npm.py           target `web`: the page (its files are in web/) and the npm packages it needs
to_ctranslate2.py           target `ctranslate2`, with a comparison with the model
ctranslate2_spec.py         folds a model into CTranslate2's layers, and says which models it can fold
card.py                     an export's README.md
"""
