"""The openai and openai-agents SDKs over a WebSocket. What they made of the answers comes back as JSON."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agents import Agent, ModelSettings, function_tool, responses_websocket_session, set_tracing_disabled
from openai import OpenAI
from openai.types.responses import CompactedResponse, ResponsesServerEvent
from pydantic import TypeAdapter
from worker import misfits, serve

URL = f"{sys.argv[1]}/v1"
CLIENT = OpenAI(base_url=URL, api_key="none", max_retries=0)
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")
TURNS_MAX = 4
TYPES: dict[str, Any] = {"event": TypeAdapter(ResponsesServerEvent), "window": TypeAdapter(CompactedResponse)}


def turns(requests: list[dict[str, Any]]) -> list[list[Any]]:
    """One turn after the other on one connection. `$N` in a request is the id of the Nth turn's response."""
    answers: list[list[Any]] = []
    with CLIENT.responses.connect(max_retries=0) as connection:
        for request in requests:
            named = request.get("previous_response_id")
            if named and named.startswith("$"):
                request["previous_response_id"] = answers[int(named[1:])][-1]["response"]["id"]
            if request.get("input") == "$outputs":
                request["input"] = [
                    {"type": "function_call_output", "call_id": item["call_id"], "output": "red"}
                    for item in answers[-1][-1]["response"]["output"]
                    if item["type"] == "function_call"
                ]
            connection.response.create(**request)
            events: list[Any] = []
            while not events or events[-1]["type"] not in ENDS:
                events.append(connection.recv().to_dict(mode="json"))
            answers.append(events)
    return answers


def compact(**params: Any) -> Any:
    return CLIENT.responses.compact(**params).to_dict(mode="json")


@function_tool
def pick() -> str:
    """Picks a colour."""
    return "red"


async def chat(inputs: list[str], store: bool, chained: bool) -> dict[str, Any]:
    """Several runs of one agent in one session, each with what was said before."""
    async with responses_websocket_session(api_key="none", base_url=URL) as session:
        settings = ModelSettings(store=store)
        agent = Agent(name="caller", model="demo", tools=[pick], model_settings=settings)
        texts: list[str] = []
        kinds: list[str] = []
        history: list[Any] = []
        previous: str | None = None
        for input in inputs:
            said: Any = input if chained else [*history, {"role": "user", "content": input}]
            options: dict[str, Any] = {"max_turns": TURNS_MAX, "previous_response_id": previous}
            options["auto_previous_response_id"] = chained
            result = session.run_streamed(agent, said, **options)
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    kinds.append(event.data.type)
            texts.append(result.final_output)
            history = result.to_input_list()
            previous = result.last_response_id if chained else None
        return {"texts": texts, "kinds": kinds}


async def hand_over(store: bool) -> dict[str, Any]:
    """A hand-off between two agents of the caller's over one connection each."""
    async with responses_websocket_session(api_key="none", base_url=URL) as session:
        settings = ModelSettings(store=store)
        refunds = Agent(name="refunds", instructions="Be brief.", model="refunds", tools=[pick], model_settings=settings)
        triage = Agent(name="triage", instructions="Who helps?", model="triage", handoffs=[refunds], model_settings=settings)
        result = await session.run(triage, "I want my money back.", max_turns=TURNS_MAX)
        return {"text": result.final_output, "agent": result.last_agent.name}


if __name__ == "__main__":
    set_tracing_disabled(True)
    serve({
        "turns": turns,
        "compact": compact,
        "misfits": misfits(TYPES),
        "chat": lambda **params: asyncio.run(chat(**params)),
        "hand_over": lambda **params: asyncio.run(hand_over(**params)),
    })
