# SPDX-License-Identifier: Apache-2.0
"""A hub on this machine: enough of the protocol of model hubs for clients that download from one, and every fault a
network has. Two servers on loopback: the hub, which knows who may see what, and a store of another origin to which it
redirects large files by links that expire.

    with Hub() as hub:
        hub.add("org/name", {"config.json": b"{}", "big.gguf": Sparse(2 << 30)})
        ... HF_ENDPOINT=hub.url ...
        hub.log     what was asked: Request(server, method, path, status, token, start, sent)
"""
import base64
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse

BLOCK = 1 << 20


class Sparse:
    """A large file that takes no memory: 1 MiB blocks, each made of its number."""

    def __init__(self, size):
        self.size = size
        h = hashlib.sha256()
        for at in range(0, size, BLOCK):
            h.update(self.read(at, min(BLOCK, size - at)))
        self.sha256 = h.hexdigest()

    @staticmethod
    def _block(i):
        seed = hashlib.sha256(str(i).encode()).digest()
        return seed * (BLOCK // 32)

    def read(self, at, n):
        out = []
        while n:
            i, skip = divmod(at, BLOCK)
            piece = self._block(i)[skip:skip + n]
            out.append(piece)
            at += len(piece)
            n -= len(piece)
        return b"".join(out)


class Bytes:
    def __init__(self, data):
        self.data, self.size = data, len(data)
        self.sha256 = hashlib.sha256(data).hexdigest()

    def read(self, at, n):
        return self.data[at:at + n]

    @property
    def git(self):
        return hashlib.sha1(b"blob %d\0" % self.size + self.data).hexdigest()


class Repo:
    def __init__(self, files, lfs_from):
        self.files = {p: f if isinstance(f, Sparse) else Bytes(f) for p, f in files.items()}
        self.lfs = {p for p, f in self.files.items() if isinstance(f, Sparse) or f.size >= lfs_from}
        self.commit = hashlib.sha1(repr(sorted((p, f.sha256) for p, f in self.files.items())).encode()).hexdigest()

    def etag(self, path):
        f = self.files[path]
        return f.sha256 if path in self.lfs else f.git


class Request:
    def __init__(self, server, method, path, token):
        self.server, self.method, self.path, self.token = server, method, path, token
        self.status, self.start, self.sent, self.cut = 0, 0, 0, False


class Hub:
    LFS_FROM = 1000  # bytes; smaller files are plain git objects

    def __init__(self):
        self.repos, self.revisions, self.manifests, self.blobs = {}, {}, {}, {}
        self.tokens, self.gated, self.info = {}, set(), {}
        self.log, self.lock = [], threading.Lock()
        self.link_s = 3600.0       # how long a link to the store is good
        self.page = 1000           # entries of a tree in one reply
        self.cut_after = []        # bytes after which the next replies of the store break, one each
        self.rate = None           # bytes/s of each reply of the store
        self.ranges = True
        self.spoil = set()         # paths whose bytes are wrong
        self.fail_next = []        # statuses for the next requests to the hub
        self.raw = {}              # paths and the bodies that are sent for them
        self.stall_next = 0        # replies of the store that say nothing
        self.servers = [self._serve("hub"), self._serve("store")]
        self.url, self.store = (f"http://127.0.0.1:{s.server_address[1]}" for s in self.servers)
        self.store = self.store.replace("127.0.0.1", "localhost")

    def _serve(self, role):
        s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self, "role": role}))
        s.daemon_threads = True
        threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return s

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for s in self.servers:
            s.shutdown()
            s.server_close()

    def add(self, name, files, revision="main", info=None):
        r = Repo(files, self.LFS_FROM)
        self.repos.setdefault(name, {})[r.commit] = r
        self.revisions.setdefault(name, {})[revision] = r.commit
        self.info[name] = info or {}
        return r

    def add_manifest(self, repo, tag, layers):
        """layers: (media type, bytes)"""
        listed = []
        for media, data in layers:
            f = Bytes(data)
            self.blobs[f.sha256] = f
            listed.append({"mediaType": media, "digest": "sha256:" + f.sha256, "size": f.size})
        self.manifests[repo, tag] = json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": listed[0], "layers": listed[1:]}).encode()

    def sent(self, server="store"):
        return sum(r.sent for r in self.log if r.server == server)

    def link(self, name, path):
        until = time.time() + self.link_s
        what = base64.urlsafe_b64encode(f"{name}|{path}|{until}".encode()).decode()
        return f"{self.store}/objects/{what}"

    def take_cut(self):
        with self.lock:
            return self.cut_after.pop(0) if self.cut_after else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub, role = None, ""

    def log_message(self, *args):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:  # the client has gone
            pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        self.request = r = Request(self.role, self.command, self.path, token)
        self.hub.log.append(r)
        if self.role == "store" or self.path.startswith("/objects/"):
            return self.store()
        if self.hub.fail_next:
            status = self.hub.fail_next.pop(0)
            return self.reply(status, b"", {"Retry-After": "1"} if status == 429 else {})
        url = urllib.parse.urlsplit(self.path)
        path = url.path
        if path in self.hub.raw:
            return self.reply(200, self.hub.raw[path], kind="application/json")
        if path.startswith("/v2/"):
            return self.registry(path)
        if path.startswith("/plain/"):
            return self.plain(path)
        m = re.fullmatch(r"/api/models/([^/]+/[^/]+|[^/]+)/(revision|tree|refs|paths-info)(?:/([^/]+))?", path)
        if m:
            return self.api(m[1], m[2], urllib.parse.unquote(m[3] or ""), urllib.parse.parse_qs(url.query))
        m = re.fullmatch(r"/api/models/([^/]+/[^/]+|[^/]+)", path)
        if m:
            return self.api(m[1], "revision", "main", {})
        m = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if m:
            return self.resolve(m[1], urllib.parse.unquote(m[2]), urllib.parse.unquote(m[3]))
        return self.reply(404, b"Not Found")

    def do_POST(self):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        self.request = r = Request(self.role, "POST", self.path, token)
        self.hub.log.append(r)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        m = re.fullmatch(r"/api/models/([^/]+/[^/]+)/paths-info/([^/]+)", self.path)
        if not m:
            return self.reply(404, b"")
        asked = json.loads(body)["paths"]
        return self.api(m[1], "paths-info", urllib.parse.unquote(m[2]), {"paths": asked})

    def reply(self, status, body, headers=None, kind="text/plain"):
        self.request.status = status
        self.send_response(status)
        for k, v in (headers or {}).items():
            self.send_header(k, v)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.request.sent += len(body)

    def refused(self, name):
        """Has the caller no right to the repository?"""
        h, token = self.hub, self.request.token
        if token and token not in h.tokens.values() and h.tokens:
            self.reply(401, b"", {"X-Error-Message": "Invalid credentials"})
        elif name not in h.repos or (name in h.tokens and token != h.tokens[name]):
            self.reply(404 if token else 401, b"", {"X-Error-Code": "RepoNotFound"})
        else:
            return False
        return True

    def is_gated(self, name):
        if name in self.hub.gated:
            self.reply(403 if self.request.token else 401, b"", {"X-Error-Code": "GatedRepo"})
            return True
        return False

    def find(self, name, revision):
        repo = self.hub.repos[name].get(self.hub.revisions[name].get(revision, revision))
        if not repo:
            self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"})
        return repo

    def api(self, name, what, revision, query):
        if self.refused(name) or not (repo := self.find(name, revision or "main")):
            return None
        if what == "revision":
            info = {"id": name, "modelId": name, "_id": "1", "sha": repo.commit, "private": False, "gated": name in self.hub.gated,
                    "downloads": 1, "likes": 1, "lastModified": "2026-01-01T00:00:00.000Z", "tags": [], **self.hub.info[name]}
            return self.reply(200, json.dumps(info).encode(), kind="application/json")
        entries = []
        for path in sorted(repo.files):
            f = repo.files[path]
            e = {"type": "file", "path": path, "size": f.size, "oid": repo.etag(path)[:40],
                 "lastCommit": {"id": repo.commit, "title": "", "date": "2026-01-01T00:00:00.000Z"}}
            if path in repo.lfs:
                e["lfs"] = {"oid": f.sha256, "size": f.size, "pointerSize": 134}
            entries.append(e)
        if what == "paths-info":
            entries = [e for e in entries if e["path"] in query["paths"]]
            return self.reply(200, json.dumps(entries).encode(), kind="application/json")
        folders = sorted({p.rpartition("/")[0] for p in repo.files} - {""})
        entries = [{"type": "directory", "path": p, "size": 0, "oid": "0" * 40} for p in folders] + entries
        at = int(query.get("cursor", ["0"])[0])
        more = {}
        if at + self.hub.page < len(entries):
            more["Link"] = f'<{self.hub.url}/api/models/{name}/tree/{revision}?recursive=true&cursor={at + self.hub.page}>; rel="next"'
        return self.reply(200, json.dumps(entries[at:at + self.hub.page]).encode(), more, "application/json")

    def resolve(self, name, revision, path):
        if self.refused(name) or self.is_gated(name) or not (repo := self.find(name, revision)):
            return None
        if path not in repo.files:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repo.commit})
        f = repo.files[path]
        head = {"X-Repo-Commit": repo.commit, "ETag": f'"{repo.etag(path)}"', "Accept-Ranges": "bytes"}
        if path in repo.lfs:
            head.update({"X-Linked-ETag": f'"{f.sha256}"', "X-Linked-Size": str(f.size), "Location": self.hub.link(name, f"{repo.commit}|{path}")})
            return self.reply(302, b"Found. Redirecting", head)
        return self.send_file(f, head, path in self.hub.spoil)

    def store(self):
        what = base64.urlsafe_b64decode(self.path.rpartition("/")[2]).decode().split("|")
        if time.time() > float(what[3]):
            return self.reply(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
        f = self.hub.repos[what[0]][what[1]].files[what[2]]
        return self.send_file(f, {"Accept-Ranges": "bytes", "ETag": f'"{f.sha256}"'}, what[2] in self.hub.spoil)

    def registry(self, path):
        m = re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", path)
        if m and (m[1], m[2]) in self.hub.manifests:
            return self.reply(200, self.hub.manifests[m[1], m[2]], kind="application/vnd.docker.distribution.manifest.v2+json")
        m = re.fullmatch(r"/v2/(.+)/blobs/sha256:([0-9a-f]{64})", path)
        if m and m[2] in self.hub.blobs:
            return self.send_file(self.hub.blobs[m[2]], {"Docker-Content-Digest": "sha256:" + m[2]})
        return self.reply(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')

    def plain(self, path):
        name = path.removeprefix("/plain/")
        if name not in self.hub.blobs:
            return self.reply(404, b"Not Found")
        f = self.hub.blobs[name]
        return self.send_file(f, {"ETag": f'"{f.sha256[:16]}"'})

    def send_file(self, f, head, spoil=False):
        h, start, end = self.hub, 0, f.size
        m = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        status = 200
        if m and h.ranges:
            start, end, status = int(m[1]), min(f.size, int(m[2] or f.size - 1) + 1), 206
            if start >= f.size:
                return self.reply(416, b"", {"Content-Range": f"bytes */{f.size}"})
            head = {**head, "Content-Range": f"bytes {start}-{end - 1}/{f.size}"}
        self.request.status, self.request.start = status, start
        if self.role == "store" and h.stall_next > 0:
            h.stall_next -= 1
            time.sleep(3)
            self.close_connection = True
            return None
        self.send_response(status)
        for k, v in head.items():
            self.send_header(k, v)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        cut = h.take_cut() if self.role == "store" and self.command == "GET" and end - start > 1 else None
        stop = end if cut is None else start + 1 + cut % (end - start - 1)
        try:
            self.send_bytes(f, start, stop, spoil)
        except OSError:  # the client has gone: that was no cut
            if cut is not None:
                h.cut_after.append(cut)
            raise
        if stop < end:
            self.request.cut = True
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(2)
        return None

    def send_bytes(self, f, start, stop, spoil):
        h = self.hub
        while self.command == "GET" and start < stop:
            piece = f.read(start, min(1 << 16, stop - start))
            self.wfile.write(piece if not spoil else bytes(len(piece)))
            self.request.sent += len(piece)
            start += len(piece)
            if h.rate:
                time.sleep(len(piece) / h.rate)
