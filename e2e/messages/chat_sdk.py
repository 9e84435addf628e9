"""Chat Completions by the openai SDK, told what to ask. What it made of the answer comes back as JSON."""

from __future__ import annotations

import sys
from typing import Any

from openai import APIError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter
from worker import misfits, raised, serve

CLIENT = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
TYPES: dict[str, Any] = {"chunk": TypeAdapter(ChatCompletionChunk), "completion": TypeAdapter(ChatCompletion)}
TOOLS: Any = [{"type": "function", "function": {"name": "pick", "description": "Picks a colour.", "parameters": {"type": "object"}}}]


def create(**params: Any) -> dict[str, Any]:
    try:
        return CLIENT.chat.completions.create(model="demo", **params).to_dict(mode="json")
    except APIError as error:
        return {"error": raised(error)}


def raw(**params: Any) -> list[Any]:
    """The chunks of the protocol."""
    options: Any = {"include_usage": True}
    with CLIENT.chat.completions.create(model="demo", stream=True, stream_options=options, **params) as chunks:
        return [chunk.to_dict(mode="json") for chunk in chunks]


def stream(**params: Any) -> dict[str, Any]:
    """The SDK's own accumulator, and its last word."""
    with CLIENT.chat.completions.stream(model="demo", stream_options={"include_usage": True}, **params) as stream:
        try:
            events = [event.type for event in stream]
        except APIError as error:
            return {"error": raised(error)}
        return {"events": events, "final": stream.get_final_completion().to_dict(mode="json")}


def run_tools(prompt: str, streamed: bool) -> list[dict[str, Any]]:
    """A loop over a tool of the caller's, as the SDK's users write it."""
    said: list[Any] = [{"role": "user", "content": prompt}]
    told: list[dict[str, Any]] = []
    while True:
        if streamed:
            with CLIENT.chat.completions.stream(model="demo", tools=TOOLS, messages=said) as stream:
                completion: Any = stream.get_final_completion()
        else:
            completion = CLIENT.chat.completions.create(model="demo", tools=TOOLS, messages=said)
        message = completion.choices[0].message
        said.append(message)
        told.append(completion.to_dict(mode="json"))
        if completion.choices[0].finish_reason != "tool_calls":
            return told
        said += [{"role": "tool", "tool_call_id": call.id, "content": "red"} for call in message.tool_calls]


if __name__ == "__main__":
    functions = [create, raw, stream, run_tools]
    serve({function.__name__: function for function in functions} | {"misfits": misfits(TYPES)})
