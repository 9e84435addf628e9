"""openai-agents: its loop runs here, the model is an agent of Headwater."""
import asyncio

from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI

set_default_openai_client(AsyncOpenAI(base_url="http://127.0.0.1:8787/v1", api_key="unused"))
set_tracing_disabled(True)  # traces would go to OpenAI


@function_tool
def portfolio() -> str:
    """The shares that the user has."""
    return "100 VNM"


async def main() -> None:
    agent = Agent(name="broker", model="helper", instructions="Be brief.", tools=[portfolio])
    result = await Runner.run(agent, "What is the price of VNM?")
    print(result.final_output)
    for item in result.new_items:
        print(item.type, getattr(item.raw_item, "name", ""))


asyncio.run(main())
