"""Translation memories: files of translators' tools, and hostile files."""

import gzip
import tracemalloc

import pytest

from repose.data import lines
from repose.data.advice import what_to_do, where
from repose.data.check import check_corpus
from repose.data.readers import MAX_CHARACTERS, PairReader, languages_of_files
from repose.system.errors import DataError

BOTH = {"en-US": "The cat sleeps.", "pt-BR": "O gato dorme."}


def unit(texts: dict[str, str]) -> str:
    variants = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items())
    return f'<tu tuid="1"><prop type="x">no text</prop>{variants}</tu>\n'


def memory(*units: str, own: str = "en-US", head: str = '<?xml version="1.0" encoding="UTF-8"?>') -> str:
    return (
        f'{head}\n<tmx version="1.4"><header srclang="{own}" segtype="sentence"/><body>{"".join(units)}</body></tmx>\n'
    )


@pytest.fixture
def tmx(tmp_path):
    def write(*units: str, name: str = "a.tmx", **rest: str):
        (tmp_path / name).write_text(memory(*units, **rest), encoding="utf-8")
        return tmp_path / name

    return write


def read(path, **fields):
    reader = PairReader([path], **fields)
    return list(reader), reader.counts


def refused(path, sentence: str, **fields) -> None:
    with pytest.raises(DataError) as caught:
        read(path, **fields)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_source_is_what_the_file_names_as_its_own(tmx):
    both = [(BOTH["en-US"], BOTH["pt-BR"])]
    assert read(tmx(unit(BOTH)))[0] == both
    assert read(tmx(unit(dict(reversed(BOTH.items())))))[0] == both
    assert read(tmx(unit(BOTH), own="en"))[0] == both  # without the region
    assert read(tmx(unit(BOTH), own="pt-BR"))[0] == [pair[::-1] for pair in both]
    assert read(tmx(unit(BOTH), own="*all*"))[0] == both  # TMX's word for any


def test_a_side_is_never_the_other_and_the_first_variant_that_says_something(tmx):
    both = {"pt-BR": "ônibus", "pt-PT": "autocarro"}
    for order in (both, dict(reversed(both.items()))):
        for src, tgt, wanted in (
            ("pt-BR", "pt", ("ônibus", "autocarro")),
            ("pt", "pt-BR", ("autocarro", "ônibus")),
            ("pt", "pt-PT", ("ônibus", "autocarro")),
        ):
            assert read(tmx(unit(order)), src_field=src, tgt_field=tgt)[0] == [wanted]
    variants = tmx(unit({"en-US": " ", "en-GB": "colour", "de": "Farbe"}))
    assert read(variants, src_field="en", tgt_field="de")[0] == [("colour", "Farbe")]


def test_several_memories_are_read_in_the_direction_of_the_first(tmx):
    first, other = tmx(unit(BOTH)), tmx(unit(BOTH), unit({"en-US": "Rain"}), name="b.tmx", own="pt-BR")
    reader = PairReader([first, other])
    assert list(reader) == [(BOTH["en-US"], BOTH["pt-BR"])] * 2
    assert (reader.counts.dropped.total(), reader.counts.languages) == (1, ("en", "pt"))
    assert languages_of_files([first, other], ("src", "tgt")) == ("en", "pt")


@pytest.mark.parametrize("fields", [("pt", "en"), ("pt-BR", "EN"), ("PT_br", "en-us"), ("pt", "tgt"), ("src", "en")])
def test_fields_are_languages(tmx, fields):
    src, tgt = fields
    found, _ = read(tmx(unit(BOTH)), src_field=src, tgt_field=tgt)
    assert found == [(BOTH["pt-BR"], BOTH["en-US"])]


def test_languages_that_are_known_otherwise(tmx):
    path = tmx(unit(BOTH))
    assert read(path, languages=("pt", "en"))[0] == [(BOTH["pt-BR"], BOTH["en-US"])]
    assert read(path, languages=("pt", "en"), src_field="en", tgt_field="pt")[0] == [(BOTH["en-US"], BOTH["pt-BR"])]


def test_a_region_that_was_asked_for_is_no_other(tmx):
    two = {"pt-PT": "O autocarro.", "pt-BR": "O ônibus."}
    assert read(tmx(unit(two)), src_field="pt-BR", tgt_field="pt-PT")[0] == [("O ônibus.", "O autocarro.")]
    refused(tmx(unit(BOTH)), "has no text in 'pt-PT' (present: 'en-US', 'pt-BR')", src_field="en", tgt_field="pt-PT")


def test_several_languages_have_to_be_chosen_from(tmx):
    three = {**BOTH, "es": "El gato duerme."}
    refused(tmx(unit(three)), "has texts in 'en-US', 'pt-BR', 'es': say which are source and target")
    found, _ = read(tmx(unit(three)), src_field="es", tgt_field="pt")
    assert found == [("El gato duerme.", "O gato dorme.")]
    assert read(tmx(unit(three)), tgt_field="es")[0] == [("The cat sleeps.", "El gato duerme.")]
    refused(tmx(unit(three), own="*all*"), "--tgt-field, or with corpus.src_field and corpus.tgt_field", tgt_field="es")


def test_units_without_one_of_the_languages_are_counted(tmx):
    french = unit({"en-US": "One.", "fr": "Un."})
    path = tmx(unit({"en-US": "Alone."}), unit(BOTH), french, french, unit({"pt-BR": "Sozinho."}))
    found, counts = read(path, tgt_field="pt")
    assert found == [(BOTH["en-US"], BOTH["pt-BR"])]
    assert counts.dropped == {"no text in pt": 3, "no text in en": 1}
    refused(path, "has texts in 'en-US', 'pt-BR', 'fr'")  # not what the first unit happens to have


def test_codes_of_the_document_are_no_text(tmx):
    codes = (
        "A <bpt i='1'>&lt;b&gt;</bpt><hi>bold</hi><ept i='1'>&lt;/b&gt;</ept> word<ph><sub>alt</sub>x</ph> &amp; more"
    )
    assert read(tmx(unit({"en": codes, "pt": "x"})))[0] == [("A bold word & more", "x")]


def test_references_to_entities_of_a_document_type_elsewhere(tmx):
    head = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    found, _ = read(tmx(unit({"en": "caf&eacute;&nbsp;&nothing; x", "pt": "y"}), own="en", head=head))
    assert found == [("café\xa0&nothing; x", "y")]


def test_two_variants_of_one_language_have_to_be_chosen_from(tmx):
    two = {"pt-PT": "O autocarro.", "pt-BR": "O ônibus."}
    refused(tmx(unit(two)), "has texts in 'pt-PT', 'pt-BR'", tgt_field="pt")
    refused(tmx(unit(two)), "has texts in 'pt-PT', 'pt-BR'", languages=("und", "pt"))


def test_codes_of_two_letters_and_of_three_are_one_language(tmx):
    path = tmx(unit({"en-GB": "one", "de": "eins"}), unit({"eng": "two", "deu": "zwei"}))
    pairs = [("one", "eins"), ("two", "zwei")]
    assert read(path)[0] == pairs
    assert read(path, languages=("deu", "eng"))[0] == [pair[::-1] for pair in pairs]


def test_names_of_columns_are_no_languages(tmx):
    """As a run has them that was trained on a table, and is measured on a memory; unless they are names of some."""
    columns = {"src_field": "original", "tgt_field": "translated"}
    assert read(tmx(unit(BOTH)), **columns, languages=("pt", "en"))[0] == [(BOTH["pt-BR"], BOTH["en-US"])]
    refused(tmx(unit(BOTH)), "has no text in 'original'", **columns)
    assert read(tmx(unit(BOTH)), src_field="Portuguese", tgt_field="english")[0] == [(BOTH["pt-BR"], BOTH["en-US"])]


def test_the_languages_that_were_read_are_told(tmx):
    _, counts = read(tmx(unit(BOTH)), src_field="pt")
    assert counts.describe() == "1 of 1 pair read, pt → en"


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("Several men in<ph>&lt;br/&gt;</ph>hard hats", "Several men in hard hats"),
        ("Click <ph x='1'/> to go", "Click to go"),
        ("auf <ph/>, um <it pos='begin'/><ut>x</ut> zu", "auf, um zu"),
        ("<ph/>All of it<ph/>", "All of it"),
        ("half<bpt i='1'/>way<ept i='1'/> there", "halfway there"),
        ("(<ph/>) a-<ph/>b", "() a-b"),
    ],
)
def test_where_a_code_stood_no_words_run_together(tmx, segment, text):
    assert read(tmx(unit({"en": segment, "pt": "x"}), own="en"))[0] == [(text, "x")]


def test_a_reference_without_a_document_type(tmx):
    assert read(tmx(unit({"en": "x&nbsp;y", "pt": "z"}), own="en"))[0] == [("x\xa0y", "z")]


@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_a_reference_that_two_pieces_of_the_file_share(tmx, monkeypatch, size):
    monkeypatch.setattr(lines, "_PIECE", size)
    found, counts = read(tmx(unit({"en": "a&#x1F;b&#2;c&amp;d", "pt": "z"}), own="en"))
    assert found == [("a b c&d", "z")]
    assert counts.notes == {"control character read as a space": 2}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_characters_that_xml_cannot_hold_are_spaces(tmp_path, encoding):
    """Some tools write them. They are found across pieces of the file, and in what nobody reads."""
    odd = unit({"en": "A man&#x1F;runs&#2;.\x1f&#31;&#xA;x&#65;", "pt": "y"}).replace("no text", "&#11;")
    many = [unit({"en": f"n {n} &#x1F;", "pt": "y"}) for n in range(4_000)]
    (tmp_path / "a.tmx").write_bytes(memory(odd, *many, own="en", head='<?xml version="1.0"?>').encode(encoding))
    found, counts = read(tmp_path / "a.tmx")
    assert found[0][0].split() == ["A", "man", "runs", ".", "xA"]
    assert [src.strip() for src, _ in found[1:]] == [f"n {n}" for n in range(4_000)]
    assert counts.notes == {"control character read as a space": 4_005}


@pytest.mark.parametrize("change", [str.upper, lambda text: text.replace("<", "<x:").replace("<x:/", "</x:")])
def test_names_of_early_tools(tmp_path, change):
    tags = change('<tmx><header srclang="en"/><body><tu><tuv lang="en"><seg>').replace("X:TMX", "x:tmx")
    middle, end = change('</seg></tuv><tuv lang="pt"><seg>'), change("</seg></tuv></tu></body></tmx>")
    (tmp_path / "a.tmx").write_text(f"{tags}a{middle}b{end}", encoding="utf-8")
    assert read(tmp_path / "a.tmx")[0] == [("a", "b")]


def test_variants_of_one_language_are_read_together(tmx):
    path = tmx(unit({"EN-US": "a", "de": "b"}), unit({"en-GB": "c", "de": "d"}), own="EN-US")
    assert read(path)[0] == [("a", "b"), ("c", "d")]
    refused(path, '("en" is "en-US", too)', src_field="en-AU", tgt_field="de")


def test_an_encoding_that_cannot_be_read(tmp_path):
    (tmp_path / "a.tmx").write_bytes(memory(unit(BOTH), head='<?xml version="1.0" encoding="shift_jis"?>').encode())
    refused(tmp_path / "a.tmx", "is in an encoding that cannot be read")
    refused(tmp_path / "a.tmx", "save it in UTF-8")


def test_a_line_break_is_how_the_file_is_laid_out(tmx):
    laid_out = unit({"en": "\n      The cat\n      sleeps.\r\n   ", "pt": " as it is  "})
    assert read(tmx(laid_out, own="en"))[0] == [("The cat sleeps.", " as it is  ")]


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "windows-1252", "utf-8-sig"])
def test_the_file_says_its_encoding(tmp_path, encoding):
    head = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    (tmp_path / "a.tmx").write_bytes(memory(unit({"en": "café", "pt": "maçã"}), head=head).encode(encoding))
    assert read(tmp_path / "a.tmx")[0] == [("café", "maçã")]


def test_packed(tmp_path, tmx):
    (tmp_path / "b.tmx.gz").write_bytes(gzip.compress(tmx(unit(BOTH)).read_bytes()))
    assert read(tmp_path / "b.tmx.gz")[0] == [(BOTH["en-US"], BOTH["pt-BR"])]


def test_the_first_of_two_variants_in_one_language(tmx):
    twice = (
        '<tu><tuv lang="en"><seg>a</seg></tuv><tuv lang="en"><seg>b</seg></tuv><tuv lang="pt"><seg>c</seg></tuv></tu>'
    )
    assert read(tmx(twice, own="en"))[0] == [("a", "c")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no unit in two languages"),
        (memory(), "has no unit in two languages"),
        (memory(unit({"en": "a"})), "has no unit in two languages"),
        ("not XML at all", "line 1: this is not XML"),
        ("<html><body/></html>", "is not a translation memory but an XML file of <html>"),
        (memory(unit(BOTH), "\n\n<tu>").replace("</body>", "</bady>"), "this is not XML (mismatched tag"),
        (memory(unit(BOTH))[:-20], "this is not XML"),
        (memory(unit(BOTH), head='<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'), "declares entities"),
        (memory(unit(BOTH), head='<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>'), "declares entities"),
        (memory(unit(BOTH), head='<?xml version="1.0" encoding="x-none"?>'), "this is not XML (unknown encoding"),
    ],
)
def test_what_is_no_translation_memory(tmp_path, content, sentence):
    (tmp_path / "a.tmx").write_text(content, encoding="utf-8")
    refused(tmp_path / "a.tmx", sentence)
    refused(tmp_path / "a.tmx", "" if "no unit" in sentence else sentence, src_field="en", tgt_field="pt")


def test_memory_does_not_grow_with_the_file(tmx):
    path = tmx(*(unit({"en": f"Sentence {number}.", "pt": f"Frase {number}."}) for number in range(40_000)))
    tracemalloc.start()
    try:
        number = sum(1 for _ in PairReader([path], src_field="en", tgt_field="pt"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert number == 40_000
    assert peak < 8 << 20  # a block of the file, and its units


def test_a_huge_segment_is_dropped_and_not_held(tmx):
    path = tmx(
        unit({"en": "x" * 50_000_000, "pt": "y"}), unit({"en": "a", "pt": "b"}), unit({"en": "ä" * 20_000, "pt": "c"})
    )
    tracemalloc.start()
    try:
        found, counts = read(path, src_field="en", tgt_field="pt")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [("a", "b"), ("ä" * MAX_CHARACTERS, "c")]
    assert counts.dropped == {"longer than 20,000 characters": 1}
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("begin", "middle", "says"),
    [
        ("<tmx><!-- ", "x", "a tag or comment of more than 1,048,576 bytes"),
        ("<tmx><x a='", "x", "a tag or comment of more than 1,048,576 bytes"),
        ("<tmx><body>", "<p>", "more than 200 levels of elements"),
    ],
)
def test_a_bomb_is_not_unpacked(tmp_path, begin, middle, says):
    """Of fifty million bytes; the parser itself would hold them."""
    (tmp_path / "a.tmx.gz").write_bytes(gzip.compress((begin + middle * (50_000_000 // len(middle))).encode(), 1))
    tracemalloc.start()
    try:
        refused(tmp_path / "a.tmx.gz", says)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("begin", "middle", "says"),
    [("<tmx><body>", "<n{0}/>", "10,000 names"), ("<tmx><body>", "<x n{0}='1'/>", "10,000 names")],
)
def test_names_without_end_are_not_kept(tmp_path, begin, middle, says):
    (tmp_path / "a.tmx").write_text(begin + "".join(middle.format(number) for number in range(100_000)))
    refused(tmp_path / "a.tmx", says)


def test_codes_of_languages_are_cut(tmx):
    refused(tmx(unit({"a" * 500_000: "x", "b" * 500_000: "y"}), own="c" * 500_000), "x", src_field="x", tgt_field="y")
    with pytest.raises(DataError) as caught:
        read(tmx(unit({"a" * 500_000: "x", "b" * 500_000: "y", "c": "z"})))
    assert len(str(caught.value)) < 1000


def test_white_space_without_end_is_no_work(tmx):
    """No part of a run of it is looked at again and again: these units would take minutes."""
    runs = [space * 19_000 for space in (" ", chr(0x2003), chr(9))] * 9
    found, _ = read(tmx(*(unit({"en": f"x{run}y", "pt": f"<ph/>{run}{chr(10)}{run[:9]}z"}) for run in runs), own="en"))
    assert [src for src, _ in found] == [f"x{run}y" for run in runs]
    assert {tgt.strip() for _, tgt in found} == {"z"}


def test_a_unit_of_endless_variants(tmx):
    many = "".join(f'<tuv xml:lang="q{number}"><seg>x</seg></tuv>' for number in range(10_000))
    refused(tmx(f"<tu>{many}</tu>"), "has texts in 'q0', 'q1'")
    with pytest.raises(DataError) as caught:
        read(tmx(f"<tu>{many}</tu>"), src_field="en", tgt_field="q9")
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("texts", "name", "fields", "languages"),
    [
        (BOTH, "a.tmx", ("src", "tgt"), ("en", "pt")),
        (BOTH, "a.tmx.gz", ("src", "tgt"), ("und", "und")),  # which it is not
        (BOTH, "a.pt-en.tmx", ("src", "tgt"), ("pt", "en")),
        (BOTH, "a.tmx", ("pt-BR", "en"), ("pt-BR", "en")),
        ({"pt-PT": "a", "pt-BR": "b"}, "a.tmx", ("src", "tgt"), ("pt-PT", "pt-BR")),
        ({"pt": "a"}, "a.tmx", ("src", "tgt"), ("und", "und")),
    ],
)
def test_the_languages_of_a_corpus(tmx, texts, name, fields, languages):
    assert languages_of_files([tmx(unit(texts), name=name)], fields) == languages


def test_a_check_counts_units(tmx):
    """Of which each has several lines in the file."""
    whole = [unit({"en": f"{n} and {n}", "pt": f"{n} e {n}"}) for n in range(20, 0, -1)]
    path = tmx(*whole, unit({"en": "Empty.", "pt": ""}), own="en")
    found = check_corpus({"train": PairReader([path])})
    assert [where(finding) for finding in found.findings] == ["1 training pair (4.8 %; target empty, first unit 21)"]
    assert what_to_do(found.findings[0]).startswith("Nothing, if a unit is not translated yet")
