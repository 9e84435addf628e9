"""The anthropic SDK, told what to ask. What it made of the answer comes back as JSON, as the SDK would write it."""

from __future__ import annotations

import sys
from typing import Any

from anthropic import Anthropic, APIStatusError, beta_tool
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter
from worker import misfits, serve

CLIENT = Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
TOKENS: Any = {"model": "demo", "max_tokens": 1024}
TYPES: dict[str, Any] = {
    "event": TypeAdapter(RawMessageStreamEvent),
    "message": TypeAdapter(Message),
    "beta event": TypeAdapter(BetaRawMessageStreamEvent),
    "beta message": TypeAdapter(BetaMessage),
}


def failed(error: APIStatusError) -> dict[str, Any]:
    body: Any = error.body
    return {"name": type(error).__name__, "status": error.status_code, "type": body["error"]["type"]}


def create(beta: bool = False, **params: Any) -> dict[str, Any]:
    messages: Any = CLIENT.beta.messages if beta else CLIENT.messages
    try:
        return messages.create(**TOKENS | params).to_dict(mode="json")
    except APIStatusError as error:
        return {"error": failed(error)}


def stream(beta: bool = False, **params: Any) -> dict[str, Any]:
    """The SDK's own accumulator: what it was told, and its last word."""
    messages: Any = CLIENT.beta.messages if beta else CLIENT.messages
    events: list[Any] = []
    with messages.stream(**TOKENS | params) as stream:
        try:
            for event in stream:
                events.append(event.type)
        except APIStatusError as error:
            return {"events": events, "error": failed(error)}
        final = stream.get_final_message()
    return {"events": events, "final": final.to_dict(mode="json")}


def raw(beta: bool = False, **params: Any) -> list[Any]:
    """The events of the protocol."""
    messages: Any = CLIENT.beta.messages if beta else CLIENT.messages
    with messages.create(stream=True, **TOKENS | params) as events:
        return [event.to_dict(mode="json") for event in events]


def converse(turns: list[str], beta: bool = False) -> list[dict[str, Any]]:
    """A conversation as the SDK's users write it: what came is sent back as it is."""
    messages: Any = CLIENT.beta.messages if beta else CLIENT.messages
    said: list[Any] = []
    told: list[dict[str, Any]] = []
    for turn in turns:
        said.append({"role": "user", "content": turn})
        message = messages.create(messages=said, **TOKENS)
        said.append({"role": message.role, "content": message.content})
        told.append(message.to_dict(mode="json"))
    return told


def run_tools(prompt: str) -> dict[str, Any]:
    """The SDK's own loop over a tool of the caller's."""
    asked: list[str] = []

    @beta_tool
    def pick() -> str:
        """Picks a colour."""
        asked.append("pick")
        return "red"

    runner = CLIENT.beta.messages.tool_runner(
        **TOKENS, tools=[pick], messages=[{"role": "user", "content": prompt}], max_iterations=4
    )
    told = [message.to_dict(mode="json") for message in runner]
    return {"asked": asked, "told": told}


if __name__ == "__main__":
    functions = [create, stream, raw, converse, run_tools]
    serve({function.__name__: function for function in functions} | {"misfits": misfits(TYPES)})
