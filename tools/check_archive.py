#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the library must not contain is checked on the built library itself:

  - no call that ends the process, writes to the terminal, or reads or changes the state of the process;
  - no writable data and no constructors: "no global state" is a fact, not an intention;
  - every extern begins with bn_ or bitnet_;
  - the shared library exports exactly the functions that the public headers mark BITNET_API.

usage: check_archive.py [--asserts] LIBBITNET.a LIBBITNET.so HEADER...
--asserts: a debug build, in which assert() may stand.
Prints one line a violation; exit status 1 if there is any. Needs nm and objdump (binutils)."""
import re
import subprocess
import sys

ENDS = "exit _exit _Exit quick_exit abort raise kill pthread_exit atexit on_exit"
PRINTS = ("printf vprintf fprintf vfprintf dprintf vdprintf puts putchar putchar_unlocked fputs fputc putc fwrite "
          "perror psignal warn warnx vwarn err errx verr error syslog stdout stderr stdin")
STATE = ("signal sigaction sigprocmask setlocale getenv secure_getenv setenv putenv environ chdir umask srand rand "
         "strtok strerror system popen fork")
BANNED = set((ENDS + " " + PRINTS + " " + STATE).split())
PREFIXES = ("bn_", "bitnet_")


def tool(*args):
    return subprocess.run(args, capture_output=True, text=True, check=True).stdout.splitlines()


def plain(name):
    """printf for __printf_chk@GLIBC_2.3.4, the name under which hardened builds call it."""
    m = re.fullmatch(r"__(\w+?)_chk", name := name.split("@")[0])
    return m[1] if m else name


def check_symbols(lib, asserts):
    bad = []
    for line in tool("nm", "-A", lib):
        m = re.match(r"(.+?):\s*[0-9a-f]*\s+(\w)\s+(\S+)", line)
        if not m:
            continue
        where, kind, name = m.groups()
        if kind in "Uw" and plain(name) in BANNED:
            bad.append(f"{where}: calls {plain(name)}")
        if kind == "U" and name == "__assert_fail" and not asserts:
            bad.append(f"{where}: assert() in a release build")
        if kind in "TRDBGSCVWiu" and not name.startswith(PREFIXES):
            bad.append(f"{where}: extern {name} lacks the prefix bn_ or bitnet_")
    return bad


def check_data(lib):
    """Sections that are loaded and writable, bar those made read-only after relocation, and the names in them."""
    bad, names, member = [], {}, lib
    for line in tool("objdump", "-t", lib):
        if m := re.match(r"(\S+):\s+file format", line):
            member = m[1]
        elif m := re.match(r"[0-9a-f]+ .{7} (\S+)\s+[0-9a-f]+\s+(?:\.hidden |0x[0-9a-f]+ )*(\S+)$", line):
            names.setdefault((member, m[1]), []).append(m[2])
    for (member, section), found in names.items():
        if section == "*COM*":
            bad.append(f"{member}: writable data (common): {' '.join(found)}")
    for line in tool("objdump", "-h", "-w", lib):
        if m := re.match(r"(\S+):\s+file format", line):
            member = m[1]
        elif m := re.match(r"\s*\d+ (\S+)\s+([0-9a-f]+)\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+2\*\*\d+\s+(.*)", line):
            section, size, flags = m[1], int(m[2], 16), m[3]
            if size and "ALLOC" in flags and "READONLY" not in flags and not section.startswith(".data.rel.ro"):
                found = [s for s in names.get((member, section), []) if s != section]
                bad.append(f"{member}: writable data: {size} bytes in {section}: {' '.join(found) or '(no name)'}")
    return bad


def check_exports(so, headers):
    text = re.sub(r"/\*.*?\*/", "", "".join(open(header).read() for header in headers), flags=re.S)
    text = "\n".join(s for s in text.splitlines() if not s.lstrip().startswith("#"))
    declared = set(re.findall(r"BITNET_API[^;(]*?(bitnet_\w+)\s*\(", text))
    exported = {line.split()[-1].split("@")[0] for line in tool("nm", "-D", "--defined-only", so)}
    return ([f"{so}: {s} is declared in a public header but not exported" for s in sorted(declared - exported)] +
            [f"{so}: {s} is exported but not declared in a public header" for s in sorted(exported - declared)])


def main(argv):
    asserts = "--asserts" in argv
    lib, so, *headers = [a for a in argv if a != "--asserts"]
    bad = check_symbols(lib, asserts) + check_data(lib) + check_exports(so, headers)
    for line in bad:
        print(line)
    return bool(bad)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
