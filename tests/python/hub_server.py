"""A Hugging Face Hub with one model, for huggingface_hub and Ballast: file lists, redirects to a second host, checksums."""

import hashlib
import json
from urllib.parse import unquote, urlsplit

from range_server import RangeServer, asked_range


class Hub:
    """`files` by name; those in `large` are served by another host, as the real Hub does for large files."""

    def __init__(self, repo, files, large=(), token=None, page=1000):
        self.repo = repo
        self.files = dict(files)
        self.large = set(large)
        self.token = token
        self.page = page
        self.commit = hashlib.sha1(repr(sorted(self.files)).encode()).hexdigest()
        self.revisions = {"main": self.commit, "refs/pr/1": self.commit}
        self.cdn = RangeServer({f"/cdn/{name}": body for name, body in self.files.items()})
        self.front = RangeServer()
        self.front.answer = self.answer

    def __enter__(self):
        self.cdn.__enter__()
        self.front.__enter__()
        return self

    def __exit__(self, *_):
        self.front.__exit__()
        self.cdn.__exit__()

    @property
    def url(self):
        return self.front.url

    def git_sum(self, name):
        body = self.files[name]
        return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()

    def etag(self, name):
        return hashlib.sha256(self.files[name]).hexdigest() if name in self.large else self.git_sum(name)

    def answer(self, handler):
        server = self.front
        server.requests.append((handler.command, handler.path, dict(handler.headers)))
        parts = urlsplit(handler.path)
        path = parts.path
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            server.reply(handler, 401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted."})
        elif path.startswith(f"/api/models/{self.repo}/revision/"):
            commit = self.commit_of(unquote(path.rsplit("/", 1)[1]))
            if commit is None:
                server.reply(handler, 404, b"", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            else:
                siblings = [{"rfilename": name} for name in self.files]
                self.reply_json(handler, {"id": self.repo, "modelId": self.repo, "sha": commit, "siblings": siblings, "private": False, "tags": [], "downloads": 0})
        elif path.startswith(f"/api/models/{self.repo}/tree/"):
            self.reply_tree(handler, path, parts.query)
        elif path.startswith(f"/{self.repo}/resolve/"):
            revision, name = path.removeprefix(f"/{self.repo}/resolve/").split("/", 1)
            self.reply_file(handler, self.commit_of(unquote(revision)), unquote(name))
        else:
            server.reply(handler, 404, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})

    def commit_of(self, revision):
        return revision if revision == self.commit else self.revisions.get(revision)

    def reply_json(self, handler, value, headers=None):
        self.front.reply(handler, 200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def reply_tree(self, handler, path, query):
        start = int(query.split("cursor=")[1].split("&")[0]) if "cursor=" in query else 0
        names = sorted(self.files)
        entries = []
        for name in names[start : start + self.page]:
            entry = {"type": "file", "path": name, "size": len(self.files[name]), "oid": self.git_sum(name)}
            if name in self.large:
                entry["lfs"] = {"oid": self.etag(name), "size": len(self.files[name]), "pointerSize": 134}
            entries.append(entry)
        more = start + self.page < len(names)
        link = {"Link": f'<{self.url}{path}?recursive=true&cursor={start + self.page}>; rel="next"'} if more else {}
        self.reply_json(handler, entries, link)

    def reply_file(self, handler, commit, name):
        server = self.front
        if commit is None or name not in self.files:
            server.reply(handler, 404, b"", {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
            return
        common = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if name in self.large:
            headers = {"X-Linked-Etag": f'"{self.etag(name)}"', "X-Linked-Size": str(len(self.files[name]))}
            server.reply(handler, 302, b"", {**common, **headers, "Location": f"{self.cdn.url}/cdn/{name}?signature=abc"})
            return
        body = self.files[name]
        headers = {**common, "ETag": f'"{self.etag(name)}"'}
        asked = asked_range(handler, body)
        if asked and body:
            begin, end = asked
            server.reply(handler, 206, body[begin:end], {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{len(body)}"})
        else:
            server.reply(handler, 200, body, headers)
