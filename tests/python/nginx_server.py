"""nginx on a free port, run by the current user, serving one folder."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
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
    """Yield the URL of the server."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    work = Path(tempfile.mkdtemp(prefix="nginx-"))
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)  # nginx leaves it as it is; a worker that loses the race for a connection must not wait in accept()
    port = listening.getsockname()[1]
    user = "user root;" if os.geteuid() == 0 else ""
    (work / "nginx.conf").write_text(CONFIG.format(work=work, folder=folder, port=port, user=user))
    # The variable by which nginx hands its sockets to a new version of itself: no other program can take the port meanwhile.
    environment = {**os.environ, "NGINX": f"{listening.fileno()};"}
    command = [program, "-e", work / "error.log", "-c", work / "nginx.conf"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment, pass_fds=[listening.fileno()])
    listening.close()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(work)
