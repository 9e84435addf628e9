"""Anthropic's SDK: a stream, whose tools the server runs."""
from anthropic import Anthropic

client = Anthropic(base_url="http://127.0.0.1:8787", api_key="unused")
question = {"role": "user", "content": "What is the price of VNM?"}

with client.messages.stream(model="helper", max_tokens=1024, messages=[question]) as stream:
    for text in stream.text_stream:
        print(text, end="")
    print()
    print([block.type for block in stream.get_final_message().content])
