"""Documents whose form stays: what is translated in them, and where their markup goes in the translation.

job.py                              a document on its way through a model: sentences out, translations in
formats.py                          which format a file is, by its suffix
segment.py                          what is translated as a whole, with the markup that stands in it
encodings.py                        the encodings of text
plain.py, subtitles.py, html.py     text, subtitles, pages
archive.py, xml_source.py           zip archives, and XML whose untouched bytes stay
office.py, runs.py                  what office files have in common: paragraphs in an archive, text in runs
wordprocessing.py, presentation.py, opendocument.py
                                    .docx, .pptx, and .odt, .odp and .ods
epub.py                             books
alignment.py                        which source letters each word of a translation came from
placement.py                        markup put into the translation by that
"""
