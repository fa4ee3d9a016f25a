"""Models over HTTP: LibreTranslate's API, answered by one front process from the translations of several others.

settings.py                         what `repose serve` can be told
server.py                           from start to end: models, application, HTTP server
protocol.py                         bounds on what is read before a request is known
middleware.py                       what holds of every request
app.py                              the answers, endpoint by endpoint
access.py, parameters.py            who may ask, and what is asked for
refusals.py                         answers that are no translation
catalogue.py, languages.py          models and their directions; codes of languages, and which one a text is in
texts.py, documents.py, explain.py  a text, a file and an explanation: sentences out, translations in
dispatcher.py                       sentences of many requests in batches for workers
workers.py, process.py, messages.py worker processes from the front, from within, and what the two say to each other
files.py                            translated files until they are fetched
spec.py                             the API as OpenAPI
metrics.py, log.py                  what is counted, and what is written about it

page/ holds the page for people.
"""
