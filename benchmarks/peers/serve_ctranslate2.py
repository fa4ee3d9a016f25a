"""CTranslate2 behind a minimal server: what LibreTranslate does at its core, and no more.

It answers JSON at /translate, without limits, sentence splitting or batches of several requests. Each request is a
`translate_batch` in a thread, as in LibreTranslate, with a translator of one thread per core inside CTranslate2.

Arguments: a folder of `repose export --to ctranslate2`, the beam size, the number of cores. Prints its port.
"""

import asyncio
import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ctranslate2
import tokenizers
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

folder, beam_size, cores = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
source = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.src.json"))
target = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.tgt.json"))
source.encode_special_tokens = True
penalty = json.loads((folder / "repose-ctranslate2.json").read_text())["decoding"].get("length_penalty", 1.0)
translator = ctranslate2.Translator(str(folder), inter_threads=cores, intra_threads=1, compute_type="float32")
threads = ThreadPoolExecutor(4)  # LibreTranslate's default


def translate(texts: list[str]) -> list[str]:
    """Translate each text."""
    tokens = [source.encode(text).tokens for text in texts]
    results = translator.translate_batch(tokens, beam_size=beam_size, length_penalty=penalty, min_decoding_length=0)
    return [target.decode([target.token_to_id(token) for token in result.hypotheses[0]]) for result in results]


async def answer(request: Request) -> JSONResponse:
    """Answer POST /translate."""
    q = (await request.json())["q"]
    texts = [q] if isinstance(q, str) else q
    found = await asyncio.get_running_loop().run_in_executor(threads, translate, texts)
    return JSONResponse({"translatedText": found[0] if isinstance(q, str) else found})


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/translate", answer, methods=["POST"])])
config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
uvicorn.Server(config).run(sockets=[listener])
