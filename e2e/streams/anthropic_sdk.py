"""Reads every stream of `messages` with the anthropic SDK, and prints what it made of them as JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from anthropic import Anthropic, APIError
from anthropic.types import Message
from replay import read_all

ASKED: Any = [{"role": "user", "content": "Hello."}]
STOP = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    # The service's own tools have used up their turns: there is more to come, as with any other limit.
    "pause_turn": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "content_filter",
}


def messages(url: str) -> dict[str, Any]:
    client = Anthropic(api_key="none", base_url=url, max_retries=0)
    written: defaultdict[int, str] = defaultdict(str)
    with client.messages.stream(model="m", max_tokens=1024, messages=ASKED) as stream:
        try:
            for event in stream:
                if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                    written[event.index] += event.delta.partial_json
        except APIError as error:
            return answer(stream.current_message_snapshot, written) | {"error": repr(error)}
        message = stream.current_message_snapshot
    return answer(message, written) | {"stop": STOP.get(str(message.stop_reason), message.stop_reason)}


def answer(message: Message, written: dict[int, str]) -> dict[str, Any]:
    usage = message.usage
    cached, cache_write = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "refusal": "",
        "reasoning": "".join(block.thinking for block in message.content if block.type == "thinking"),
        "calls": [
            {"name": block.name, "arguments": arguments(block.input, written[index])}
            for index, block in enumerate(message.content)
            if block.type == "tool_use"
        ],
        "usage": {
            # This service does not count what its cache held; we do.
            "input": usage.input_tokens + cached + cache_write,
            "cached": cached,
            "cache_write": cache_write,
            "output": usage.output_tokens,
            "reasoning": getattr(usage.output_tokens_details, "thinking_tokens", 0) or 0,
        },
    }


def arguments(read: Any, written: str) -> str:
    """The SDK guesses at arguments that were cut; then they are what was written so far."""
    try:
        json.loads(written or "{}")
    except ValueError:
        return written
    return json.dumps(read)


if __name__ == "__main__":
    print(json.dumps(read_all("messages", messages)))
