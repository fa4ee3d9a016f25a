"""Trained models as folders that other tools load: ONNX, CTranslate2, a page for the browser.

targets.py                  `repose export`: the target by its name, the folder, its description
base.py                     options, and what an export hands back
to_onnx.py                  target `onnx`: the graphs of `repose.graphs` with all that translating needs
to_web.py, npm.py           target `web`: a page (its files are in web/), and the npm packages that it needs
to_ctranslate2.py           target `ctranslate2`, compared with the model before it is kept
ctranslate2_spec.py         a model folded into the layers that CTranslate2 has, and which can be
card.py                     README.md of an export
"""
