// SPDX-License-Identifier: Apache-2.0
// A line to the server that is as slow and as faulty as a test wants: an answer's events come one
// by one, replies can be put in the server's place, connections can break. Everything else passes
// as it is.
import http from 'node:http';

const FLUSH_MS = 200; // for what was written to be sent, before the connection breaks

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Line {
    constructor(server) {
        this.server = new URL(server);
        this.bodies = []; // of the chats that were asked for
        this.aborted = 0; // answers that the browser gave up
        this.reset();
    }

    reset() {
        this.eventMs = 0;
        this.replies = []; // [status, headers, body] for the next chats
        this.key = null; // that requests must show
        this.cutAfter = Infinity; // events of an answer, then the connection breaks
        this.down = false;
        this.bodies.length = 0;
        this.aborted = 0;
    }

    async open() {
        this.listener = http.createServer((q, r) => this.#pass(q, r));
        await new Promise((resolve) => this.listener.listen(0, '127.0.0.1', resolve));
        this.url = `http://127.0.0.1:${this.listener.address().port}/`;
        return this;
    }

    close() {
        this.listener.close();
        this.listener.closeAllConnections();
    }

    async #pass(q, r) {
        const chunks = [];
        for await (const c of q) chunks.push(c);
        const body = Buffer.concat(chunks);
        if (this.down) return q.socket.destroy();
        const needsKey = q.url.startsWith('/v1/') || q.url.startsWith('/metrics');
        if (this.key && needsKey && q.headers.authorization !== `Bearer ${this.key}`)
            return refuse(r, 401, {}, 'the key of the request is not known');
        if (q.url === '/v1/chat/completions') {
            this.bodies.push(JSON.parse(body));
            if (this.replies.length > 0) return refuse(r, ...this.replies.shift());
        }
        const up = http.request(
            {
                host: this.server.hostname,
                port: this.server.port,
                method: q.method,
                path: q.url,
                headers: { ...q.headers, host: this.server.host },
            },
            (reply) => {
                r.writeHead(reply.statusCode, reply.headers);
                if (reply.headers['content-type']?.startsWith('text/event-stream')) this.#slowly(reply, r);
                else reply.pipe(r);
            },
        );
        up.on('error', () => r.destroy());
        r.on('close', () => {
            if (!r.writableFinished && q.url === '/v1/chat/completions') this.aborted++;
            up.destroy();
        });
        up.end(body);
    }

    /** An event may hold several tokens; the last one waits for the others. */
    async #slowly(reply, r) {
        let rest = '',
            n = 0;
        try {
            for await (const piece of reply.setEncoding('utf8')) {
                const events = (rest + piece).split('\n\n');
                rest = events.pop();
                for (const e of events) {
                    if (n++ === this.cutAfter) {
                        await sleep(FLUSH_MS);
                        return r.destroy();
                    }
                    if (r.destroyed) return;
                    r.write(e + '\n\n');
                    if (this.eventMs) await sleep(this.eventMs);
                }
            }
            r.end(rest);
        } catch {
            r.destroy();
        }
    }
}

function refuse(r, status, headers, message) {
    r.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    r.end(JSON.stringify({ error: { message, type: 'error', param: null, code: null } }));
}
