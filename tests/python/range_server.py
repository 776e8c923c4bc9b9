"""An HTTP server with range requests that records requests and can inject faults."""

import hashlib
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class RangeServer:
    """`files` maps paths ("/model.safetensors") to bytes. `fault` may handle a request itself: it is called with the handler, the
    content of the file and the requested range, and returns whether it has sent a response."""

    def __init__(self, files=None):
        self.files = dict(files or {})
        self.fault = None
        self.delay = 0.0  # seconds before every response
        self.etags = {}  # by path; default: a hash of the content
        self.no_file = 404  # status for missing files
        self.requests = []  # (method, path, headers)
        self.sent = 0  # bytes of bodies
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                outer.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass  # clients that disconnect are normal here

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def forget(self):
        self.requests.clear()
        self.sent = 0

    def gets(self, path):
        return [headers for method, asked, headers in self.requests if method == "GET" and asked.split("?")[0] == path]

    def answer(self, handler):
        path = unquote(urlsplit(handler.path).path)
        with self.lock:
            self.requests.append((handler.command, handler.path, dict(handler.headers)))
        if self.delay:
            time.sleep(self.delay)
        body = self.files.get(path)
        if body is not None and self.fault and self.fault(handler, body, asked_range(handler, body)):
            return
        if body is None:
            self.reply(handler, self.no_file, b"no such file")
            return
        etag = self.etags.get(path) or etag_of(body)
        wanted = handler.headers.get("If-Match")
        if wanted and wanted != etag:
            self.reply(handler, 412, b"")
            return
        asked = asked_range(handler, body)
        if asked is None:
            self.reply(handler, 200, body, {"ETag": etag, "Accept-Ranges": "bytes"})
        elif asked[0] >= len(body):
            self.reply(handler, 416, b"", {"Content-Range": f"bytes */{len(body)}", "ETag": etag})
        else:
            self.reply_part(handler, body, asked, etag)

    def begin_part(self, handler, body, asked, headers=None):
        """Send the headers of a partial response; the caller sends the body."""
        begin, end = asked
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(body)}")
        handler.send_header("ETag", etag_of(body))
        for name, value in (headers or {"Content-Length": str(end - begin)}).items():
            handler.send_header(name, value)
        handler.end_headers()

    def reply_part(self, handler, body, asked, etag=None):
        begin, end = asked
        headers = {"Content-Range": f"bytes {begin}-{end - 1}/{len(body)}", "ETag": etag or etag_of(body)}
        self.reply(handler, 206, memoryview(body)[begin:end], headers)

    def reply(self, handler, status, body, headers=None, length=None):
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        with self.lock:
            self.sent += len(body)  # counted before it is sent, because the client may look at once
        try:
            handler.wfile.write(body)
        except OSError:
            handler.close_connection = True

    def cut(self, handler):
        """Close the connection at once."""
        handler.close_connection = True
        handler.connection.close()


_etags = {}


def etag_of(body):
    key = id(body)
    if key not in _etags or _etags[key][0] is not body:
        _etags[key] = (body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return _etags[key][1]


def asked_range(handler, body):
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
    return (int(match[1]), min(int(match[2]) + 1, len(body))) if match else None
