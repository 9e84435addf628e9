"""The openai SDK, told what to call. What it made of the answer comes back as JSON, as the SDK would write it."""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import Any

from openai import BaseModel, OpenAI, Stream
from openai.pagination import SyncConversationCursorPage, SyncCursorPage, SyncPage
from openai.types.responses import Response, ResponseItem, ResponseOutputItem, ResponseStreamEvent
from pydantic import TypeAdapter
from worker import misfits, serve

CLIENT = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
PAGES = (SyncPage, SyncCursorPage, SyncConversationCursorPage)
TYPES: dict[str, Any] = {
    "event": TypeAdapter(ResponseStreamEvent),
    "response": TypeAdapter(Response),
    "output_item": TypeAdapter(ResponseOutputItem),
    "listed_item": TypeAdapter(ResponseItem),
}


def plain(answer: Any) -> Any:
    if isinstance(answer, PAGES):
        return [plain(item) for item in answer]  # asks for the next pages itself
    return answer.to_dict(mode="json") if isinstance(answer, BaseModel) else answer


def call(path: str, until: int | None = None, **params: Any) -> Any:
    """Calls a method. A stream is read to its end, or is cut after the event with the number `until`."""
    answer = attrgetter(path)(CLIENT)(**params)
    if not isinstance(answer, Stream):
        return plain(answer)
    events: list[Any] = []
    with answer:
        for event in answer:
            events.append(plain(event))
            if event.sequence_number == until:
                break
    return events


def stream(**params: Any) -> dict[str, Any]:
    """The SDK's own accumulator: its events, and its last word if it has one."""
    with CLIENT.responses.stream(**params) as stream:
        events = [plain(event) for event in stream]
        try:
            final: Any = stream.get_final_response()
        except RuntimeError as error:
            return {"events": events, "final": None, "text": None, "why": str(error)}
    return {"events": events, "final": plain(final), "text": final.output_text, "why": None}


def page(path: str, **params: Any) -> dict[str, Any]:
    """One page of a listing, and whether there are more."""
    answer = attrgetter(path)(CLIENT)(**params)
    return {"data": [plain(item) for item in answer.data], "more": answer.has_next_page()}


if __name__ == "__main__":
    serve({"call": call, "stream": stream, "page": page, "misfits": misfits(TYPES)})
