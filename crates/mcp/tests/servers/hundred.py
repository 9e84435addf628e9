"""An MCP server with a hundred tools, ninety-nine of which nobody needs. Its argument is the subject of its tools."""

import json
import sys

SUBJECT = sys.argv[1]
FILLER = ["archive", "audit", "balance", "calendar", "delete", "export", "forecast", "group", "import", "label"]
SPECIAL = {
    "crm": ("get_invoice", "Returns an invoice by its number."),
    "files": ("read_text", "Reads the text of a file."),
    "clock": ("convert_time", "Converts a time between time zones."),
}


def tools():
    name, description = SPECIAL[SUBJECT]
    schema = {"type": "object", "properties": {"number": {"type": "integer", "description": "Which one."}}}
    yield {"name": name, "description": description, "inputSchema": schema}
    for number in range(99):
        word = FILLER[number % 10]
        yield {"name": f"{word}_{number}", "description": f"Performs the {word} number {number} of the {SUBJECT}.", "inputSchema": schema}


def answer(request):
    method = request["method"]
    if method == "initialize":
        info = {"name": SUBJECT, "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": list(tools())}}
    if method == "tools/call":
        text = f"{SUBJECT} {request['params']['name']} {json.dumps(request['params']['arguments'])}"
        return {"result": {"content": [{"type": "text", "text": text}]}}
    return {"error": {"code": -32601, "message": "Unknown method."}}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}), flush=True)
