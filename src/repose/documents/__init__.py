"""Translate documents and keep their form: split them into segments, and place markup in the translations.

job.py                              a document being translated: sentences out, translations in
formats.py                          the file formats, by suffix
segment.py                          segments: paragraphs or titles with their markup
encodings.py                        text encodings of files
plain.py, subtitles.py, html.py     plain text, subtitles, HTML pages
archive.py, xml_source.py           zip archives; XML files of which unchanged bytes are kept
office.py, runs.py                  shared by office formats: paragraphs in an archive, text in runs
wordprocessing.py, presentation.py, opendocument.py
                                    .docx, .pptx, and .odt, .odp and .ods
epub.py                             books
alignment.py                        finds the source characters of each word of a translation
placement.py                        places markup in the translation with this alignment
"""
