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
from pydantic import TypeAdapter, ValidationError

SIDE_BY_SIDE = 16


def raised(error: BaseException) -> dict[str, Any]:
    """What a caller of the SDK can see of an error. One that is not the SDK's is shown with its place."""
    told: dict[str, Any] = {"name": type(error).__name__, "message": str(error)}
    if isinstance(error, APIError):
        told |= {"status": getattr(error, "status_code", None), "code": error.code, "param": error.param}
        return told | {"kind": error.type}
    return told | {"message": "".join(traceback.format_exception(error))}


def misfits(types: dict[str, TypeAdapter[Any]]) -> Callable[..., list[str]]:
    """Says what an SDK's types have against values. The SDK itself takes nearly everything unseen."""

    def find(kind: str, values: list[Any]) -> list[str]:
        found: list[str] = []
        for value in values:
            try:
                types[kind].validate_python(value)
            except ValidationError as error:
                found.append(f"{value}: {closest(error)}")
        return found

    return find


def closest(error: ValidationError) -> str:
    """A value fails against every type that it might have been. What counts is the one whose name it bears."""
    every = error.errors(include_url=False, include_input=False)
    other = {one["loc"][0] for one in every if one["loc"][1:] == ("type",)}
    return str([(one["loc"], one["msg"]) for one in every if one["loc"][0] not in other] or "no type has this name")


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
