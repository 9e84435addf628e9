"""Plays scenarios.toml through the openai-agents SDK, and prints what came of it as JSON.

The model is a script and there is no network: what is compared with Headwater is the run loop alone.
"""

import asyncio
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from agents import Agent, FunctionTool, ItemHelpers, Model, ModelResponse, RunConfig, Runner, Usage
from agents import set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from tools import TOOLS

SCENARIOS = tomllib.loads((Path(__file__).parent / "scenarios.toml").read_text())["scenario"]
# A hand-off gives the heir what was said as it was said; the SDK can also fold it into one message.
CONFIG = RunConfig(nest_handoff_history=False)


def rounds(since: list[Any]) -> int:
    """How many turns had their tools answered, since the user spoke or another agent handed over."""
    transfers = {item["call_id"] for item in since if str(item.get("name")).startswith("transfer_to_")}
    count, inside = 0, False
    for item in since:
        is_result = item.get("type") == "function_call_output"
        count += is_result and not inside
        inside = is_result
        if is_result and item["call_id"] in transfers:
            count = 0
    return count


class Scripted(Model):
    """A model that plays the file. It knows what the file uses and no more."""

    ids = 0

    def __init__(self, name: str) -> None:
        self.name = name

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        history = ItemHelpers.input_to_new_input_list(input)
        place = max(at for at, item in enumerate(history) if item.get("role") == "user")
        said, since = str(history[place]["content"]), history[place + 1 :]
        turns, names = next(self.matching(said))
        results = [item["output"] for item in since if item.get("type") == "function_call_output"]
        names["result"] = results[-1] if results else ""
        turn = turns[min(rounds(since), len(turns) - 1)]
        output = [self.item(step, names) for step in turn["steps"]]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def matching(self, said: str) -> Any:
        for scenario in SCENARIOS:
            found = re.search(scenario.get("match", ""), said, re.IGNORECASE)
            if found and scenario.get("model", self.name) == self.name:
                yield scenario["turn"], found.groupdict()

    def item(self, step: dict[str, Any], names: dict[str, str]) -> Any:
        Scripted.ids += 1

        def filled(pieces: str | list[str]) -> str:
            text = "".join(pieces)
            for name, value in names.items():
                text = text.replace(f"{{{name}}}", value)
            return text

        if "text" in step:
            text = ResponseOutputText(type="output_text", text=filled(step["text"]), annotations=[])
            return ResponseOutputMessage(
                id=f"msg_{self.ids}", type="message", role="assistant", status="completed", content=[text]
            )
        arguments = filled(step.get("arguments", "{}"))
        return ResponseFunctionToolCall(
            id=f"fc_{self.ids}", type="function_call", call_id=f"call_{self.ids}", name=step["call"], arguments=arguments
        )

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def tool(name: str, *, needs_approval: bool = False) -> FunctionTool:
    async def invoke(_: Any, arguments: str) -> str:
        return TOOLS[name](**json.loads(arguments))

    return FunctionTool(
        name=name,
        description="",
        params_json_schema={"type": "object", "properties": {}},
        on_invoke_tool=invoke,
        strict_json_schema=False,
        needs_approval=needs_approval,
    )


def shown(items: list[Any]) -> list[dict[str, Any]]:
    """Items in the form in which they are compared."""
    calls: dict[str, str] = {}
    out: list[dict[str, Any]] = []
    for item in items:
        match item.type:
            case "message_output_item":
                out.append({"type": "message", "agent": item.agent.name, "text": ItemHelpers.text_message_output(item)})
            case "tool_call_item" | "handoff_call_item":
                call = item.raw_item
                calls[call.call_id] = call.name
                arguments = json.loads(call.arguments)
                out.append({"type": "call", "agent": item.agent.name, "name": call.name, "arguments": arguments})
            case "tool_call_output_item" | "handoff_output_item":
                raw = item.raw_item
                out.append({"type": "result", "name": calls[raw["call_id"]], "output": raw["output"]})
            case "tool_approval_item":
                pass  # said by `pending`
            case other:
                raise ValueError(f"what is {other}?")
    return out


async def play(said: str) -> dict[str, Any]:
    """One run, whose approvals are all refused."""
    inner: list[dict[str, Any]] = []

    async def answer_of(result: Any) -> str:
        inner.extend(shown(result.new_items))
        return str(result.final_output)

    expert = Agent(name="expert", model=Scripted("expert"), tools=[tool("measure")])
    scout = Agent(name="scout", model=Scripted("scout"), tools=[tool("lookup")])
    asking = scout.as_tool("ask_scout", "", custom_output_extractor=answer_of, run_config=CONFIG)
    tools = [tool("lookup"), tool("measure"), tool("order", needs_approval=True), asking]
    guide = Agent(name="guide", model=Scripted("guide"), tools=tools, handoffs=[expert])
    result = await Runner.run(guide, said, run_config=CONFIG)
    pending = [{"name": item.name, "arguments": json.loads(item.arguments)} for item in result.interruptions]
    if result.interruptions:
        state = result.to_state()
        for item in result.interruptions:
            state.reject(item, rejection_message="too risky")
        result = await Runner.run(guide, state, run_config=CONFIG)
    return {
        "items": shown(result.new_items),
        "inner": inner,
        "pending": pending,
        "agent": result.last_agent.name,
        "text": result.final_output,
    }


async def main() -> None:
    print(json.dumps({said: await play(said) for said in sys.argv[1:]}))


set_tracing_disabled(True)
asyncio.run(main())
