"""nginx on a port of its own, as whoever runs the tests, serving one folder."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

CONFIG = """
daemon off;
worker_processes 2;
pid {work}/nginx.pid;
error_log {work}/error.log;
{user}
events {{ worker_connections 256; }}
http {{
  access_log {work}/access.log;
  sendfile on;
  client_body_temp_path {work}/body;
  proxy_temp_path {work}/proxy;
  fastcgi_temp_path {work}/fastcgi;
  uwsgi_temp_path {work}/uwsgi;
  scgi_temp_path {work}/scgi;
  gzip on;
  gzip_types *;
  server {{
    listen 127.0.0.1:{port};
    root {folder};
    location /slow/ {{ alias {folder}/; limit_rate 4m; }}
  }}
}}
"""


@contextlib.contextmanager
def nginx(folder):
    """Gives the address of the server."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    work = Path(tempfile.mkdtemp(prefix="nginx-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = "user root;" if os.geteuid() == 0 else ""
    (work / "nginx.conf").write_text(CONFIG.format(work=work, folder=folder, port=port, user=user))
    process = subprocess.Popen([program, "-e", work / "error.log", "-c", work / "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (work / "error.log").read_text()
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(work)
