"""LibreTranslate itself, as installed by pip, with a model of `repose export --to ctranslate2`.

LibreTranslate reads models as packages: a folder with a CTranslate2 model, a SentencePiece tokenizer and a sentence
splitter. This script makes the package from the exported model, which must have one tokenizer for both sides. The
tokenizer's merges are written as a SentencePiece model with the same pieces. LibreTranslate's default splitters are
downloads, so it gets spaCy's, which it also supports, with rules instead of a network, which take less time.

Arguments: a folder of `repose export --to ctranslate2`; the beam size; the number of translations that CTranslate2
computes at the same time, each in one thread (0: as many as LibreTranslate asks for); a folder to work in. Prints its
port.
"""

import json
import logging
import os
import shutil
import socket
import sys
from pathlib import Path

BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
"""Bytes that a byte-level tokenizer writes as the character of the same number. It writes all others from 256 on."""


def piece_of(token: str) -> str:
    """Return a byte-level token as SentencePiece writes it; "" if it is only part of a character."""
    others = [byte for byte in range(256) if byte not in BYTES]
    byte_of = {chr(byte): byte for byte in BYTES} | {chr(256 + n): byte for n, byte in enumerate(others)}
    try:
        return bytes(byte_of[character] for character in token).decode().replace(" ", "▁")
    except UnicodeDecodeError:
        return ""


def write_sentencepiece(tokenizer: dict, path: Path) -> list[str]:
    """Write a SentencePiece model that splits like a byte-level BPE tokenizer; return the pieces in order of ids."""
    import sentencepiece.sentencepiece_model_pb2 as proto

    model = tokenizer["model"]
    assert (model["type"], tokenizer["pre_tokenizer"]["type"]) == ("BPE", "ByteLevel")
    ranks = {"".join(pair): rank for rank, pair in enumerate(model["merges"])}
    special = {token["content"] for token in tokenizer["added_tokens"]}
    pieces: list[str] = []
    written = proto.ModelProto()
    for token in sorted(model["vocab"], key=model["vocab"].get):
        piece = token if token in special else piece_of(token)
        if not piece or not piece.isprintable():
            piece = f"<unused {len(pieces)}>"
        pieces.append(piece)
        entry = written.pieces.add()
        # Of two pieces that could be merged, the one with the higher score is merged: the earlier merge.
        entry.piece, entry.score = piece, -float(ranks.get(token, 0))
        if token == "[UNK]":
            entry.type = entry.UNKNOWN
        elif token in special or piece.startswith("<unused"):
            entry.type = entry.CONTROL
    written.trainer_spec.model_type = written.trainer_spec.BPE
    written.trainer_spec.vocab_size = len(pieces)
    written.trainer_spec.unk_id = pieces.index("[UNK]")
    written.trainer_spec.unk_piece = "[UNK]"
    written.normalizer_spec.name = "identity"
    written.normalizer_spec.add_dummy_prefix = False
    written.normalizer_spec.remove_extra_whitespaces = False
    path.write_bytes(written.SerializeToString())
    return pieces


def write_package(exported: Path, package: Path, source: str, target: str) -> None:
    """Write the package that LibreTranslate would otherwise download."""
    import spacy

    tokenizer = (exported / "tokenizer.src.json").read_text()
    assert tokenizer == (exported / "tokenizer.tgt.json").read_text(), "one tokenizer for both sides"
    (package / "model").mkdir(parents=True)
    shutil.copy(exported / "model.bin", package / "model")
    pieces = write_sentencepiece(json.loads(tokenizer), package / "sentencepiece.model")
    (package / "model" / "shared_vocabulary.json").write_text(json.dumps(pieces))
    config = json.loads((exported / "config.json").read_text())
    config |= {"add_source_bos": True, "add_source_eos": True}
    (package / "model" / "config.json").write_text(json.dumps(config))
    spacy.blank("xx").to_disk(package / "spacy")
    names = {"from_code": source, "from_name": source, "to_code": target, "to_name": target}
    about = {"package_version": "1.0", "argos_version": "1.9", "type": "translate", **names}
    (package / "metadata.json").write_text(json.dumps(about))


def main() -> None:
    """Command-line entry point."""
    exported, beam_size, at_once, work = Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]).resolve()
    # With fewer than two packages, LibreTranslate looks for more to download.
    write_package(exported, work / "packages" / "there", "pt", "en")
    write_package(exported, work / "packages" / "back", "en", "pt")
    (work / "argos-translate" / "spacy" / "senter" / "model").mkdir(parents=True)
    os.environ |= {
        **{name: str(work) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")},
        **{"ARGOS_PACKAGES_DIR": str(work / "packages"), "ARGOS_CHUNK_TYPE": "SPACY", "ARGOS_BEAM_SIZE": beam_size},
        **({"ARGOS_INTER_THREADS": at_once, "ARGOS_INTRA_THREADS": "1"} if at_once != "0" else {}),
    }
    os.chdir(work)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    from libretranslate.main import main as serve

    logging.getLogger("argostranslate.utils").setLevel(logging.WARNING)  # it logs each step of each translation
    sys.argv = ["libretranslate", "--host", "127.0.0.1", "--port", str(port)]
    print(port, flush=True)
    serve()


main()
