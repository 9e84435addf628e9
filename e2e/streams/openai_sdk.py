"""Reads every stream of `responses` and `chat` with the openai SDK, and prints what it made of them as JSON."""

from __future__ import annotations

import json
from typing import Any

from openai import APIError, OpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from replay import read_all

ASKED: Any = [{"role": "user", "content": "Hello."}]
CHAT_STOP = {"stop": "stop", "tool_calls": "tool_calls", "function_call": "tool_calls", "length": "max_tokens"}
INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "content_filter"}


def client(url: str) -> OpenAI:
    return OpenAI(api_key="none", base_url=url, max_retries=0)


def tokens(read: Any, read_details: Any, written: Any, written_details: Any) -> dict[str, int]:
    return {
        "input": read or 0,
        "cached": getattr(read_details, "cached_tokens", 0) or 0,
        "cache_write": getattr(read_details, "cache_write_tokens", 0) or 0,
        "output": written or 0,
        "reasoning": getattr(written_details, "reasoning_tokens", 0) or 0,
    }


def responses(url: str) -> dict[str, Any]:
    """The SDK's last word is the response of the terminal event. Where there is none, its deltas are what was said."""
    last: Response | None = None
    deltas = ""
    try:
        with client(url).responses.stream(model="m", input=ASKED) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    deltas += event.delta
                elif event.type in ("response.completed", "response.incomplete", "response.failed"):
                    last = event.response
                elif event.type == "error":
                    return failed_response(deltas, None, f"{event.code}: {event.message}")
    except APIError as error:
        return failed_response(deltas, last, repr(error))
    if last is None:
        return failed_response(deltas, None, "no terminal event")
    if last.error:
        return failed_response(deltas, last, last.error.code)
    calls = list(filter(None, map(response_call, last.output)))
    stop = "tool_calls" if calls else "stop"
    if last.incomplete_details:
        stop = INCOMPLETE[str(last.incomplete_details.reason)]
    return {
        "text": last.output_text,
        "refusal": "".join(part.refusal for part in parts(last) if part.type == "refusal"),
        "reasoning": "".join(map(thoughts, last.output)),
        "calls": calls,
        "usage": response_tokens(last),
        "stop": stop,
    }


def failed_response(text: str, last: Response | None, why: str) -> dict[str, Any]:
    return {
        "text": text,
        "refusal": "",
        "reasoning": "",
        "calls": [],
        "usage": response_tokens(last),
        "error": why,
    }


def parts(response: Response) -> list[Any]:
    return [part for item in response.output if item.type == "message" for part in item.content]


def thoughts(item: Any) -> str:
    """Open models show their thoughts themselves, others a summary of them."""
    if item.type != "reasoning":
        return ""
    return "".join(part.text for part in item.summary or item.content or [])


def response_call(item: Any) -> dict[str, Any] | None:
    if item.type == "function_call":
        return {"name": item.name, "arguments": item.arguments}
    # A custom tool is given text. As arguments it has a name.
    if item.type == "custom_tool_call":
        return {"name": item.name, "arguments": json.dumps({"input": item.input})}
    return None


def response_tokens(response: Response | None) -> dict[str, int]:
    usage = response and response.usage
    if not usage:
        return tokens(0, None, 0, None)
    return tokens(usage.input_tokens, usage.input_tokens_details, usage.output_tokens, usage.output_tokens_details)


def chat(url: str) -> dict[str, Any]:
    with client(url).chat.completions.stream(model="m", messages=ASKED) as stream:
        try:
            stream.until_done()
        except APIError as error:
            return answer(stream.current_completion_snapshot) | {"error": repr(error)}
        told = answer(stream.current_completion_snapshot)
    reason = stream.current_completion_snapshot.choices[0].finish_reason
    return told | {"stop": "tool_calls" if told["calls"] and reason == "stop" else CHAT_STOP.get(reason, reason)}


def answer(completion: ChatCompletion) -> dict[str, Any]:
    message = completion.choices[0].message
    extra = message.model_extra or {}
    functions = [call.function for call in message.tool_calls or []] + [message.function_call]
    usage = completion.usage
    return {
        "text": message.content or "",
        "refusal": message.refusal or "",
        "reasoning": extra.get("reasoning_content") or extra.get("reasoning") or "",
        "calls": [{"name": one.name, "arguments": one.arguments} for one in functions if one],
        "usage": tokens(
            getattr(usage, "prompt_tokens", 0),
            getattr(usage, "prompt_tokens_details", None),
            getattr(usage, "completion_tokens", 0),
            getattr(usage, "completion_tokens_details", None),
        ),
    }


if __name__ == "__main__":
    print(json.dumps(read_all("responses", responses) | read_all("chat", chat)))
