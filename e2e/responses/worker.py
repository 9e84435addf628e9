"""Answers requests from standard input, one line of JSON each, until there are no more. Several may be under way."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from openai import APIError

SIDE_BY_SIDE = 16


def raised(error: BaseException) -> dict[str, Any]:
    """What a caller of the SDK can see of an error. One that is not the SDK's is shown with its place."""
    told: dict[str, Any] = {"name": type(error).__name__, "message": str(error)}
    if isinstance(error, APIError):
        told |= {"status": getattr(error, "status_code", None), "code": error.code, "param": error.param}
        return told | {"kind": error.type}
    return told | {"message": "".join(traceback.format_exception(error))}


def serve(functions: dict[str, Callable[..., Any]]) -> None:
    """Calls what each line names, and writes what came of it."""
    lock = Lock()

    def answer(request: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"id": request["id"]}
        try:
            reply["result"] = functions[request["name"]](**request["args"])
        except Exception as error:
            reply["raised"] = raised(error)
        with lock:
            print(json.dumps(reply), flush=True)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for line in sys.stdin:
            pool.submit(answer, json.loads(line))
