# SPDX-License-Identifier: Apache-2.0
"""An HTTP proxy that notes whom it was asked for, and a certificate for a hub."""
import base64
import http.client
import http.server
import select
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.parse

from tap import Missing


class Proxy:
    """seen: (what was asked, the credentials) of every request"""

    def __init__(self, name, password):
        self.seen, self.wanted = [], f"{name}:{password}" if name else None
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"proxy": self}))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        at = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{name}:{urllib.parse.quote(password)}@{at}" if name else f"http://{at}"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy = None

    def log_message(self, *args):
        pass

    def note(self, what):
        coded = self.headers.get("Proxy-Authorization", "").removeprefix("Basic ")
        self.proxy.seen.append((what, base64.b64decode(coded).decode() if coded else None))

    def do_GET(self):
        self.note("GET " + self.path)
        at = urllib.parse.urlsplit(self.path)
        c = http.client.HTTPConnection(at.hostname, at.port, timeout=30)
        c.request("GET", at.path + ("?" + at.query if at.query else ""),
                  headers={k: v for k, v in self.headers.items() if not k.lower().startswith("proxy-")})
        r = c.getresponse()
        body = r.read()
        self.send_response(r.status)
        for k, v in r.getheaders():
            if k.lower() not in ("connection", "transfer-encoding"):
                self.send_header(k, v)
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self):
        self.note("CONNECT " + self.path)
        host, _, port = self.path.rpartition(":")
        there = socket.create_connection((host, int(port)), timeout=30)
        self.send_response(200)
        self.end_headers()
        here = self.connection
        while True:
            ready, _, _ = select.select([here, there], [], [], 30)
            for s in ready:
                data = s.recv(1 << 16)
                if not data:
                    there.close()
                    self.close_connection = True
                    return
                (there if s is here else here).sendall(data)
            if not ready:
                return


def encrypt(hub, pem):
    """The hub's first server speaks TLS from now on, with a certificate of its own; returns its URL."""
    if not shutil.which("openssl"):
        raise Missing("openssl is not installed")
    key = pem.with_suffix(".key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem, "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    hub.servers[0].socket = context.wrap_socket(hub.servers[0].socket, server_side=True)
    hub.url = hub.url.replace("http://", "https://")
    return hub.url
