#!/usr/bin/env python3
"""The service behind an http tool."""
import http.server
import json


class Fees(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        arguments = json.loads(self.rfile.read(int(self.headers["content-length"])))
        lines = [
            {"type": "progress", "message": "Adding up"},
            {"message_content": f"The fee is {arguments['amount'] // 1000} VND.", "summary": self.headers["headwater-user"]},
        ]
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")  # one event per line; any other type: all of it is the result
        self.end_headers()
        self.wfile.write("".join(json.dumps(line) + "\n" for line in lines).encode())


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", 8901), Fees).serve_forever()
