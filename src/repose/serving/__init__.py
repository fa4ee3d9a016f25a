"""Serve models over HTTP with LibreTranslate's API: one front process answers requests, workers translate.

settings.py                         settings and limits of `repose serve`
server.py                           runs everything: models, application, HTTP server, signals
protocol.py                         limits on reading a request: bytes, headers, seconds, connections
middleware.py                       for every request: an id, its endpoint, headers, a log line, counts
app.py                              the endpoints
access.py, parameters.py            API keys and rate limits; the parameters of a request
refusals.py                         error responses
catalogue.py, languages.py          models and the directions they serve; language codes and language detection
texts.py, documents.py, explain.py  translate texts and files, and explain translations
dispatcher.py                       batches the sentences of many requests for the workers
workers.py, process.py, messages.py worker processes: the front's side, the worker's side, and their messages
files.py                            keeps translated files for download
spec.py                             the API as OpenAPI
metrics.py, log.py                  Prometheus metrics, and the log

page/ holds the web page.
"""
