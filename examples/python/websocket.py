#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams text to web sockets: a client sends a prompt, and gets the text as it is made, then an empty message. All clients
share one engine and one batch; a client that leaves ends its request. With the standard library only (RFC 6455, short
messages).

usage: websocket.py [MODEL [PORT]]      In a browser: s = new WebSocket("ws://localhost:8765"); s.send("Once upon a time")"""
import asyncio
import base64
import hashlib
import sys

import bitnet

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
    key = hashlib.sha1(fields["sec-websocket-key"].encode() + GUID).digest()
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                 + base64.b64encode(key) + b"\r\n\r\n")


async def receive(reader: asyncio.StreamReader) -> str:
    """A text message; EOFError when the client says goodbye."""
    first, length = await reader.readexactly(2)
    length &= 127
    if length == 126:
        length = int.from_bytes(await reader.readexactly(2), "big")
    mask, data = await reader.readexactly(4), await reader.readexactly(length)
    if first & 15 != 1:
        raise EOFError
    return bytes(b ^ mask[i % 4] for i, b in enumerate(data)).decode()


def frame(text: str) -> bytes:
    data = text.encode()
    size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
    return b"\x81" + size + data


async def main(model: str = "embedded", port: str = "8765") -> None:
    with bitnet.Engine(model, max_seqs=8) as engine:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await shake_hands(reader, writer)
                while True:
                    async with engine.stream(await receive(reader), max_new_tokens=100) as stream:
                        async for event in stream:
                            if event.text:
                                writer.write(frame(event.text))
                                await writer.drain()
                    writer.write(frame(""))
            except (EOFError, ConnectionError, bitnet.Error):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(client, "127.0.0.1", int(port))
        print("port", server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        pass
