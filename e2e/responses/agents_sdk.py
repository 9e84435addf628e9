"""The openai-agents SDK with Headwater as its model. What came of a run comes back as JSON."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agents import Agent, HostedMCPTool, OpenAIConversationsSession, OpenAIResponsesModel, Runner, function_tool
from agents import ItemHelpers, set_tracing_disabled
from agents.items import ToolSearchCallItem, ToolSearchOutputItem
from agents.items import coerce_tool_search_call_raw_item, coerce_tool_search_output_raw_item
from agents.run_internal.streaming import stream_step_items_to_queue
from openai import AsyncOpenAI
from worker import serve

URL = f"{sys.argv[1]}/v1"
TURNS_MAX = 4


@function_tool
def pick() -> str:
    """Picks a colour."""
    return "red"


def hosted(on_approval: Any = None, label: str = "headwater") -> HostedMCPTool:
    """How a caller of this SDK says that it will answer for tools that the server runs."""
    config: Any = {"type": "mcp", "server_label": label, "server_url": URL, "require_approval": "always"}
    return HostedMCPTool(tool_config=config, on_approval_request=on_approval)


async def run(
    input: Any,
    tools: list[str],
    decide: str | None = None,
    asks: str = "afterwards",
    chained: bool = False,
    conversation: str | None = None,
    streamed: bool = True,
    model: str = "demo",
) -> dict[str, Any]:
    """One run to its end. `decide` answers every approval, `asks` says whether in a callback or between two runs."""
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(request.data.name)
        return {"approve": True} if decide == "approve" else {"approve": False, "reason": "too risky"}

    def own(name: str) -> Any:
        """A tool of the caller's, or an MCP server of the config by its label."""
        return pick if name == "pick" else hosted(answer if asks == "at_once" else None, name)

    async with AsyncOpenAI(base_url=URL, api_key="none", max_retries=0) as client:
        responses = OpenAIResponsesModel(model=model, openai_client=client)
        agent = Agent(name="caller", model=responses, tools=[own(name) for name in tools])
        options: dict[str, Any] = {"max_turns": TURNS_MAX, "auto_previous_response_id": chained}
        if conversation:
            options["session"] = OpenAIConversationsSession(conversation_id=conversation, openai_client=client)
        names: list[str] = []
        raw: list[Any] = []
        while True:
            result = await one(agent, input, options, names, raw, streamed)
            if not result.interruptions:
                break
            input = result.to_state()
            for item in result.interruptions:
                asked.append(str(item.name))
                if decide == "approve":
                    input.approve(item)
                else:
                    input.reject(item, rejection_message="too risky")
        usage = result.context_wrapper.usage
        return {
            "text": result.final_output,
            "names": names,
            "raw": raw,
            "items": [shown(item) for item in result.new_items],
            "asked": asked,
            "resent": result.to_input_list(),
            "last": result.last_response_id,
            "usage": {"input": usage.input_tokens, "output": usage.output_tokens, "requests": usage.requests},
        }


async def hand_over(chained: bool) -> dict[str, Any]:
    """A hand-off between two agents of the caller's, each with a model and tools of its own."""
    async with AsyncOpenAI(base_url=URL, api_key="none", max_retries=0) as client:
        model = {name: OpenAIResponsesModel(model=name, openai_client=client) for name in ("triage", "refunds")}
        refunds = Agent(name="refunds", instructions="Be brief.", model=model["refunds"], tools=[pick])
        triage = Agent(name="triage", instructions="Find out who helps.", model=model["triage"], handoffs=[refunds])
        names: list[str] = []
        options = {"max_turns": TURNS_MAX, "auto_previous_response_id": chained}
        result = await one(triage, "I want my money back.", options, names, [], streamed=True)
        return {"text": result.final_output, "agent": result.last_agent.name, "names": names}


async def one(agent: Any, input: Any, options: Any, names: list[str], raw: list[Any], streamed: bool) -> Any:
    if not streamed:
        return await Runner.run(agent, input, **options)
    result = Runner.run_streamed(agent, input, **options)
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            raw.append(event.data.to_dict(mode="json"))
        elif event.type == "run_item_stream_event":
            names.append(event.name)
    return result


def search_items(call: Any, output: Any) -> dict[str, Any]:
    """A search and what it found, as the SDK's own classes and events have them."""
    agent = Agent(name="caller")
    called = ToolSearchCallItem(agent=agent, raw_item=coerce_tool_search_call_raw_item(call))
    found = ToolSearchOutputItem(agent=agent, raw_item=coerce_tool_search_output_raw_item(output))
    queue: asyncio.Queue[Any] = asyncio.Queue()
    stream_step_items_to_queue([called, found], queue)
    raw, tools = called.raw_item, found.raw_item
    return {
        "call": [type(raw).__name__, raw.execution, raw.status, raw.arguments],
        "output": [type(tools).__name__, tools.status, [tool.name for tool in tools.tools]],
        "events": [queue.get_nowait().name for _ in range(queue.qsize())],
    }


def shown(item: Any) -> dict[str, Any]:
    raw = item.raw_item
    read = raw.get if isinstance(raw, dict) else lambda name, default=None: getattr(raw, name, default)
    told = {"type": item.type, "raw": read("type"), "name": read("name"), "output": read("output")}
    if read("server_label"):
        told["label"] = read("server_label")
    if item.type == "mcp_list_tools_item":
        told["tools"] = [tool.name for tool in read("tools")]
    if item.type == "message_output_item":
        told["text"] = ItemHelpers.text_message_output(item)
    return told


def start(**params: Any) -> dict[str, Any]:
    return asyncio.run(run(**params))


if __name__ == "__main__":
    set_tracing_disabled(True)
    serve({"run": start, "search_items": search_items, "hand_over": lambda **params: asyncio.run(hand_over(**params))})
