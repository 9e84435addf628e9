"""OpenAI's SDK: a stream, a second turn, and a stream that goes on where the connection was lost."""
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8787/v1", api_key="unused")

with client.responses.stream(model="helper", input="What is the price of VNM?") as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="")
    print()
    first = stream.get_final_response()

# The server has the conversation: only the new message is sent. A background run does not need this connection.
options = {"model": "helper", "previous_response_id": first.id, "background": True}
for event in client.responses.create(input="Thank you.", stream=True, **options):
    if event.type == "response.created":
        second = event.response.id
    if event.type == "response.output_text.delta":
        print(event.delta, end="")
        break  # the connection is lost

# Everything after the last event that was received; also long after the run has ended.
for event in client.responses.retrieve(second, stream=True, starting_after=event.sequence_number):
    if event.type == "response.output_text.delta":
        print(event.delta, end="")
print()
